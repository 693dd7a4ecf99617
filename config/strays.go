package config

import (
	"regexp"
	"slices"
	"strings"
)

// services are the variables that Kubernetes sets in each pod for the services of its namespace, those named warren or warren-… among them.
var services = regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// clientPrefix begins the variables of warren ctl, which a shell may have for both.
const clientPrefix = EnvPrefix + "CTL_"

// Strays returns the names of variables that look like those of settings and are none, in order: somebody meant something by them. environ is as os.Environ
// returns it.
func Strays(environ []string) (names []string) {
	known := map[string]bool{EnvPrefix + "CONFIG": true}
	for _, o := range Options() {
		known[o.Env()] = true
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, EnvPrefix) && !strings.HasPrefix(name, clientPrefix) && !known[name] && !services.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
