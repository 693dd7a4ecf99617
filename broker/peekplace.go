package broker

import (
	"strconv"
	"strings"

	"github.com/warrenmq/warren/queue/leader"
)

// A place in a queue is given to clients as "priority.number".

func formatPlace(p leader.Place) string {
	return strconv.Itoa(int(p.Priority)) + "." + strconv.FormatUint(p.ID, 10)
}

// parsePlace reads what formatPlace made; "" is the beginning.
func parsePlace(text string) (leader.Place, error) {
	if text == "" {
		return leader.Place{}, nil
	}
	prio, id, _ := strings.Cut(text, ".")
	p, err := strconv.ParseUint(prio, 10, 8)
	n, err2 := strconv.ParseUint(id, 10, 64)
	if err != nil || err2 != nil {
		return leader.Place{}, Errorf(PreconditionFailed, "'%s' is no place in a queue", text)
	}
	return leader.Place{Begun: true, Priority: uint8(p), ID: n}, nil
}
