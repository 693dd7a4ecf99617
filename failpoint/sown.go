//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
)

// EnvFault is the environment variable that names the fault a process has.
const EnvFault = "WARREN_SEEDED_FAULT"

// sown is set before main and never changed.
var sown = Fault(os.Getenv(EnvFault))

func init() {
	if sown != "" && sown != PanicForClient && !slices.Contains(Faults(), sown) {
		fmt.Fprintf(os.Stderr, "%s: there is no fault %q\n", EnvFault, sown)
		os.Exit(2)
	}
}

// Sown tells whether this process has the fault.
func Sown(f Fault) bool { return f == sown }
