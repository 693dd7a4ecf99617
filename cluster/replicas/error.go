package replicas

import (
	"errors"
	"fmt"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// Reason is why something is refused, in RabbitMQ's word if it has one.
type Reason string

// The reasons.
const (
	NoQueue       Reason = "not_found"
	NotReplicated Reason = "classic_queue_not_supported"
	NoNode        Reason = "not_cluster_member"
	NotRunning    Reason = "node_not_running"
	GoesAway      Reason = "node_being_drained" // it is drained, or leaves for good
	LastMember    Reason = "last_node"
	Busy          Reason = "cluster_change_not_permitted" // another change is under way, or came between
	NoQuorum      Reason = "no_quorum"                    // too few members run, or would
	OldLevel      Reason = "feature_flag_disabled"        // a node has a program that does not know how
	Refused       Reason = "bad_request"                  // by the catalog, for a cause of its own
	NotMember     Reason = "not_member"                   // of the queue
	NodeRuns      Reason = "node_running"
	HasReplicas   Reason = "node_has_replicas"
	Timeout       Reason = "timeout" // it may still be done
)

// Error is a refusal: nothing was changed, unless it is a Timeout.
type Error struct {
	Reason Reason
	Text   string // for people
}

func (e *Error) Error() string { return string(e.Reason) + ": " + e.Text }

func errorf(r Reason, format string, args ...any) *Error {
	return &Error{r, fmt.Sprintf(format, args...)}
}

// Unknown is the error of a change that was proposed and may have been made, or may be yet.
func Unknown(err error) error {
	return errorf(Timeout, "it is not known whether the change was made: %v", err)
}

// ofCatalog gives the catalog's refusals their form. Other errors stay: nothing was proposed.
func ofCatalog(err error) error {
	if errors.Is(err, catalog.ErrLevel) {
		return errorf(OldLevel, "%v: all nodes must have a program that knows it", err)
	}
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case errors.Is(err, catalog.ErrUnknownOutcome):
		return Unknown(err)
	case !ok:
		return err
	case e.Code == amqp.NotFound:
		return errorf(NoQueue, "%s", e.Text)
	}
	return errorf(Refused, "%s", e.Text)
}
