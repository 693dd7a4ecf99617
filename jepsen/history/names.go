package history

// What the operations of the other workloads are.
const (
	Acquire = "acquire" // of the lock Queue; ok: got it, with the token Value; fail: somebody has it
	Release = "release" // ok: written to the socket, as Ack
	Commit  = "commit"  // of a transaction; Extra has the IDs that it took and made
	Declare = "declare" // of the name Queue with the argument Value; fail: there with others, or not there
	Look    = "look"    // passive declare of Queue; ok: it is there; fail: it is not
	Delete  = "delete"  // of Queue
	API     = "api"     // GET of Queue over HTTP; ok: it is there with Value; fail: it is not
	Policy  = "policy"  // a PUT of the policy Value
	Redrive = "redrive" // a redrive of what is in Queue
)

// Rollback is the Value of a Commit that is none.
const Rollback = "rollback"

// Keys of Extra.
const (
	Took     = "took"     // of Commit: the IDs acked, with spaces between them
	Made     = "made"     // of Commit: the IDs published, likewise
	Due      = "due"      // of Publish: ms after which it may arrive
	Priority = "priority" // of Publish

)
