// Package config holds the settings of a Warren node and the one place that
// reads them from outside.
//
// A setting has one name. It is a flag (--amqp-addr), an environment variable
// (WARREN_AMQP_ADDR) and a key of the YAML file (amqp-addr); a flag wins over
// the environment, the environment over the file, the file over the default.
// The table in options.go is the only list of settings: flags, variables, keys
// and the reference table of the README come from it.
//
// Load returns a Config that has passed Validate. Every other package takes
// what it needs as values and never reads flags, variables or files itself.
package config
