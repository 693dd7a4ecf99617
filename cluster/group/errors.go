package group

import "errors"

var (
	// ErrUnknown reports a proposal whose outcome cannot be known: it may have been
	// committed, or be committed later by another leader. Never report it as a
	// failure; repeat it under the stream's watermark.
	ErrUnknown = errors.New("outcome of the proposal is unknown")
	// ErrNotLeader reports a proposal that was never appended because this
	// node does not lead the group.
	ErrNotLeader = errors.New("this node does not lead the group")
	// ErrOverloaded reports a proposal that was never appended because the backlog of
	// the group is full or it waited there too long.
	ErrOverloaded = errors.New("too many proposals are waiting")
	// ErrEmpty reports a proposal without bytes; it was never appended.
	ErrEmpty = errors.New("a proposal needs at least one byte")
	// ErrStopped reports that the group or the host is stopped.
	ErrStopped = errors.New("group is stopped")
	// ErrNotMember reports a node that is not a voter of the group.
	ErrNotMember = errors.New("node is not a voter of the group")
	// ErrTransfer reports that leadership did not move; the group goes on as before.
	ErrTransfer = errors.New("leadership was not transferred")
	// ErrNothingNew reports that nothing was applied since the last snapshot.
	ErrNothingNew = errors.New("nothing new to snapshot")
)
