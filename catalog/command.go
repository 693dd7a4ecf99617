package catalog

import (
	"fmt"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/exchange"
)

const exchangeTypeMax = exchange.Delayed

// Command is a change to the catalog: one of the types below. A command must not be
// altered once it is proposed.
type Command interface {
	// kind is the command's number in the log.
	kind() commandKind
	// fields writes or reads the command in version 1 of its kind.
	fields(f *fields)
	// validate reports why the command cannot be proposed, as an *amqp.Error.
	validate() error
	// apply makes the change. A refusal leaves the state as it was.
	apply(tx *txn) (Result, *amqp.Error)
}

// commandKind numbers the commands. The numbers are stored and never reused.
type commandKind uint8

const (
	kindFound            commandKind = 1
	kindRegisterNode     commandKind = 2
	kindRemoveNode       commandKind = 3
	kindPutVhost         commandKind = 4
	kindDeleteVhost      commandKind = 5
	kindPutUser          commandKind = 6
	kindDeleteUser       commandKind = 7
	kindPutPermission    commandKind = 8
	kindDeletePermission commandKind = 9
	kindDeclareExchange  commandKind = 10
	kindDeleteExchange   commandKind = 11
	kindBind             commandKind = 12
	kindUnbind           commandKind = 13
	kindDeclareQueue     commandKind = 14
	kindDeleteQueue      commandKind = 15
	kindQueueGone        commandKind = 16
	kindUpdateMembers    commandKind = 17

	kindPutTopicPermission    commandKind = 18
	kindDeleteTopicPermission commandKind = 19

	kindPutPolicy    commandKind = 20
	kindDeletePolicy commandKind = 21

	kindPutVhostLimits    commandKind = 25
	kindDeleteVhostLimits commandKind = 26
	kindPutUserLimits     commandKind = 27
	kindDeleteUserLimits  commandKind = 28

	kindChangeUser commandKind = 29

	// From here on the kinds belong to level 2.
	kindActivateLevel  commandKind = 30
	kindSetNodeState   commandKind = 31
	kindSetPreferred   commandKind = 32
	kindPlanMembers    commandKind = 33
	kindMembersReached commandKind = 34
	kindNodeDown       commandKind = 35
	kindForgetNode     commandKind = 36
	kindRecoverQueue   commandKind = 37
	kindQueueRecovered commandKind = 38
	kindNodeAbout      commandKind = 43

	kindNoteDefinitions commandKind = 48
	kindNameCluster     commandKind = 49
	kindPauseQueue      commandKind = 50
	kindPutShovel       commandKind = 51
	kindDeleteShovel    commandKind = 52
)

// levelOf is the level of the cluster from which on a command may be proposed.
func levelOf(c Command) int {
	switch c := c.(type) {
	case *DeclareQueue:
		if c.Queue.Size > 0 || c.Queue.DeclaredBy != "" || c.Queue.FirstLeader != "" {
			return 2
		}
	case *DeclareExchange:
		if c.Size > 0 {
			return 2
		}
	case *PutVhost:
		if c.Only != 0 {
			return 2
		}
	case *Found:
		return userLevel(&c.Admin)
	case *PutUser:
		return userLevel(&c.User)
	case *ChangeUser:
		return userLevel(&c.User)
	}
	return c.kind().level()
}

// userLevel is the level of the cluster from which on a user may be stored: programs of level 1 refuse hashes of bcrypt.
func userLevel(u *auth.User) int {
	if u.PasswordHash.Costly() {
		return 2
	}
	return level.First
}

// level is the level of the cluster from which on a kind may be proposed.
func (k commandKind) level() int {
	if k >= kindActivateLevel {
		return 2
	}
	return level.First
}

// newCommand returns an empty command of a kind, nil if the kind is unknown.
func newCommand(k commandKind) Command {
	if k.level() > level.Now {
		return nil
	}
	switch k {
	case kindActivateLevel:
		return new(ActivateLevel)
	case kindSetNodeState:
		return new(SetNodeState)
	case kindSetPreferred:
		return new(SetPreferred)
	case kindPlanMembers:
		return new(PlanMembers)
	case kindMembersReached:
		return new(MembersReached)
	case kindNodeDown:
		return new(NodeDown)
	case kindForgetNode:
		return new(ForgetNode)
	case kindRecoverQueue:
		return new(RecoverQueue)
	case kindQueueRecovered:
		return new(QueueRecovered)
	case kindNodeAbout:
		return new(NodeAbout)
	case kindNoteDefinitions:
		return new(NoteDefinitions)
	case kindPutShovel:
		return new(PutShovel)
	case kindDeleteShovel:
		return new(DeleteShovel)
	case kindPauseQueue:
		return new(PauseQueue)
	case kindNameCluster:
		return new(NameCluster)
	case kindFound:
		return new(Found)
	case kindRegisterNode:
		return new(RegisterNode)
	case kindRemoveNode:
		return new(RemoveNode)
	case kindPutVhost:
		return new(PutVhost)
	case kindDeleteVhost:
		return new(DeleteVhost)
	case kindPutUser:
		return new(PutUser)
	case kindDeleteUser:
		return new(DeleteUser)
	case kindChangeUser:
		return new(ChangeUser)
	case kindPutPermission:
		return new(PutPermission)
	case kindDeletePermission:
		return new(DeletePermission)
	case kindPutTopicPermission:
		return new(PutTopicPermission)
	case kindDeleteTopicPermission:
		return new(DeleteTopicPermission)
	case kindPutPolicy:
		return new(PutPolicy)
	case kindDeletePolicy:
		return new(DeletePolicy)
	case kindPutVhostLimits:
		return new(PutVhostLimits)
	case kindDeleteVhostLimits:
		return new(DeleteVhostLimits)
	case kindPutUserLimits:
		return new(PutUserLimits)
	case kindDeleteUserLimits:
		return new(DeleteUserLimits)
	case kindDeclareExchange:
		return new(DeclareExchange)
	case kindDeleteExchange:
		return new(DeleteExchange)
	case kindBind:
		return new(Bind)
	case kindUnbind:
		return new(Unbind)
	case kindDeclareQueue:
		return new(DeclareQueue)
	case kindDeleteQueue:
		return new(DeleteQueue)
	case kindQueueGone:
		return new(QueueGone)
	case kindUpdateMembers:
		return new(UpdateMembers)
	}
	return nil
}

// Result is the outcome of a command that was not refused.
type Result struct {
	// Index is the log index at which the command took effect.
	Index uint64
	// Changed is false when the command found everything as it should be: the
	// object declared exists, the one deleted does not.
	Changed bool
	// ID is the queue's id (DeclareQueue, DeleteQueue) or the node's incarnation
	// (RegisterNode).
	ID uint64
	// Queue is what DeclareQueue made or found, as of Index. It is nil if this node
	// got past Index by a snapshot and the queue is gone since.
	Queue *Queue
}

// Found founds the cluster: a vhost "/" and an administrator with all permissions in
// it. On a founded cluster it does nothing.
type Found struct {
	ClusterID string
	Admin     auth.User
}

// RegisterNode enters a node and gives it a new incarnation. Queues that lived in
// the memory of its earlier incarnations, and exclusive ones of their connections,
// go with their bindings.
//
// Process names the process, and Met are the processes of other nodes that it is linked
// to; [Catalog.Register] fills them in. When no registered process is left that goes back to
// the declaration of an exchange that is not durable, the exchange goes.
type RegisterNode struct {
	ID                                                    NodeID
	ClusterAddr, GossipAddr, AMQPAddr, HTTPAddr, GRPCAddr string
	Process                                               uint64
	Met                                                   []Process
}

// Process is a run of a node's program.
type Process struct {
	Node   NodeID
	Number uint64 // drawn at random
}

// RemoveNode forgets a node. It is refused while a queue has the node as a member.
type RemoveNode struct{ ID NodeID }

// PutVhost makes a vhost with its predeclared exchanges, or replaces the settings of
// an existing one, or those in Only: two tools that change different ones at the same time both have their way. Created and
// Limits are ignored.
type PutVhost struct {
	Vhost Vhost
	Only  VhostParts // 0: all; anything else from level 2 on
}

// DeleteVhost deletes a vhost and all in it.
type DeleteVhost struct{ Name string }

// PutUser makes or replaces a user. Limits are ignored.
type PutUser struct{ User auth.User }

// DeleteUser deletes a user and its permissions.
type DeleteUser struct{ Name string }

// PutPermission gives or replaces what a user may do in a vhost.
type PutPermission struct{ Vhost, User, Configure, Write, Read string }

// DeletePermission takes everything a user may do in a vhost.
type DeletePermission struct{ Vhost, User string }

// DeclareExchange makes an exchange unless one of the name exists; comparing that one
// with what was asked is the caller's affair. One that is not durable is renewed. Created, Renewed and DelayQueue
// are ignored. Members
// and Preferred are those of the queue that comes with a delayed exchange; other types
// have none. Size is as in DeclareQueue.
type DeclareExchange struct {
	Exchange  Exchange
	Members   []NodeID
	Preferred NodeID
	Size      uint64
}

// DeleteExchange deletes an exchange with its bindings. IfUnused refuses when
// it is the source of a binding.
type DeleteExchange struct {
	Vhost, Name string
	IfUnused    bool
}

// Bind adds a binding. Both ends must exist.
type Bind struct{ Binding Binding }

// Unbind removes a binding. An auto-delete exchange goes with its last binding as
// source.
type Unbind struct{ Binding Binding }

// DeclareQueue makes a queue unless one of the name exists; Result.Queue is the one there
// is afterwards. ID, State, Settings and Incarnation are ignored.
//
// NodeIncarnation is the incarnation of Members[0] (Transient) and of the owner
// (Exclusive) that the declaring node knows; the command is refused when another one
// has registered since.
//
// Queue.Size is how many members it should have, if there were too few nodes, and Queue.DeclaredBy who declares it; they belong to level 2, and are not
// there below.
type DeclareQueue struct {
	Queue           Queue
	NodeIncarnation uint64
}

// DeleteQueue frees a queue's name and removes its bindings; the queue is closing from
// then on. ID guards against deleting a successor of the same name; 0 takes any.
// With Name "" the queue is found by ID.
type DeleteQueue struct {
	Vhost, Name string
	ID          uint64
}

// QueueGone forgets a closing queue: all its members have finished.
type QueueGone struct{ ID uint64 }

// UpdateMembers changes where a replicated queue lives. IfSettings guards against
// concurrent changes: unless it is 0, it must equal Queue.Settings. From level 2 on it is refused: see PlanMembers.
type UpdateMembers struct {
	ID         uint64
	Members    []NodeID
	Preferred  NodeID
	IfSettings uint64
}

func (*Found) kind() commandKind            { return kindFound }
func (*RegisterNode) kind() commandKind     { return kindRegisterNode }
func (*RemoveNode) kind() commandKind       { return kindRemoveNode }
func (*PutVhost) kind() commandKind         { return kindPutVhost }
func (*DeleteVhost) kind() commandKind      { return kindDeleteVhost }
func (*PutUser) kind() commandKind          { return kindPutUser }
func (*DeleteUser) kind() commandKind       { return kindDeleteUser }
func (*PutPermission) kind() commandKind    { return kindPutPermission }
func (*DeletePermission) kind() commandKind { return kindDeletePermission }
func (*DeclareExchange) kind() commandKind  { return kindDeclareExchange }
func (*DeleteExchange) kind() commandKind   { return kindDeleteExchange }
func (*Bind) kind() commandKind             { return kindBind }
func (*Unbind) kind() commandKind           { return kindUnbind }
func (*DeclareQueue) kind() commandKind     { return kindDeclareQueue }
func (*DeleteQueue) kind() commandKind      { return kindDeleteQueue }
func (*QueueGone) kind() commandKind        { return kindQueueGone }
func (*UpdateMembers) kind() commandKind    { return kindUpdateMembers }

func userFields(f *fields, u *auth.User) {
	str(f, &u.Name)
	str(f, &u.PasswordHash)
	list(f, &u.Tags)
	userLimitFields(f, &u.Limits)
}

func (c *Found) fields(f *fields) {
	str(f, &c.ClusterID)
	userFields(f, &c.Admin)
}

func (c *RegisterNode) fields(f *fields) {
	str(f, &c.ID)
	str(f, &c.ClusterAddr)
	str(f, &c.GossipAddr)
	str(f, &c.AMQPAddr)
	str(f, &c.HTTPAddr)
	str(f, &c.GRPCAddr)
	f.u64(&c.Process)
	processes(f, &c.Met)
}

func (c *RemoveNode) fields(f *fields)  { str(f, &c.ID) }
func (c *DeleteVhost) fields(f *fields) { str(f, &c.Name) }
func (c *PutUser) fields(f *fields)     { userFields(f, &c.User) }
func (c *DeleteUser) fields(f *fields)  { str(f, &c.Name) }

func (c *PutPermission) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.User)
	str(f, &c.Configure)
	str(f, &c.Write)
	str(f, &c.Read)
}

func (c *DeletePermission) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.User)
}

func (c *DeclareExchange) fields(f *fields) {
	c.Exchange.fields(f)
	list(f, &c.Members)
	str(f, &c.Preferred)
	f.optional(&c.Size)
}

func (c *DeleteExchange) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
	f.bool(&c.IfUnused)
}

func (c *Bind) fields(f *fields)   { c.Binding.fields(f) }
func (c *Unbind) fields(f *fields) { c.Binding.fields(f) }

func (c *DeclareQueue) fields(f *fields) {
	if f.reading {
		c.Queue.fields(f)
	} else {
		q := c.Queue
		q.ID, q.State, q.Settings, q.Incarnation = 0, Running, 0, 0
		q.fields(f)
	}
	f.u64(&c.NodeIncarnation)
	c.Queue.late(f)
}

func (c *DeleteQueue) fields(f *fields) {
	str(f, &c.Vhost)
	str(f, &c.Name)
	f.u64(&c.ID)
}

func (c *QueueGone) fields(f *fields) { f.u64(&c.ID) }

func (c *UpdateMembers) fields(f *fields) {
	f.u64(&c.ID)
	list(f, &c.Members)
	str(f, &c.Preferred)
	f.u64(&c.IfSettings)
}

// requestID names one proposal through all its retries.
type requestID [16]byte

// entryVersion is the version of the entry's frame; commandVersion that of every
// command so far.
const (
	entryVersion   = 1
	commandVersion = 1
)

// UnknownCommandError says that an entry is of a kind or version this code does not
// know. A replica that meets one stops.
type UnknownCommandError struct{ Entry, Kind, Version byte }

func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("unknown catalog command: entry version %d, kind %d, command version %d", e.Entry, e.Kind, e.Version)
}

// encodeEntry returns the log entry of a command.
func encodeEntry(id requestID, c Command) []byte {
	level.Must(levelOf(c))
	f := fields{buf: make([]byte, 0, 128)}
	f.buf = append(f.buf, entryVersion)
	f.buf = append(f.buf, id[:]...)
	f.buf = append(f.buf, byte(c.kind()), commandVersion)
	c.fields(&f)
	return f.buf
}

// decodeEntry is the inverse of encodeEntry. Nothing aliases b. The error is an
// [*UnknownCommandError] or wraps [ErrMalformed].
func decodeEntry(b []byte) (id requestID, c Command, err error) {
	f := fields{buf: b, reading: true}
	var version, kind, entry byte
	f.byte(&entry)
	if f.err == nil && entry != entryVersion {
		return id, nil, &UnknownCommandError{Entry: entry}
	}
	f.fixed(id[:])
	f.byte(&kind)
	f.byte(&version)
	if f.err != nil {
		return id, nil, f.err
	}
	if c = newCommand(commandKind(kind)); c == nil || version != commandVersion {
		return id, nil, &UnknownCommandError{Entry: entry, Kind: kind, Version: version}
	}
	c.fields(&f)
	if a, ok := c.(*ActivateLevel); ok && f.err == nil && a.Level > level.Now {
		return id, nil, fmt.Errorf("the cluster's level becomes %d, this program knows level %d", a.Level, level.Now)
	}
	return id, c, f.end()
}
