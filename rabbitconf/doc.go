// Package rabbitconf translates a rabbitmq.conf into Warren's settings: what has a counterpart becomes a setting of package config, and of everything else
// it says what to do about it. Nothing is left out silently.
//
// Keys and their meanings are those of RabbitMQ 4.3.6 and 3.10.8, as their schemas (priv/schema of each plugin) and configuration guide have them; the
// format of the file is that of their parser (cuttlefish 3.9, src/conf_parse.peg).
package rabbitconf
