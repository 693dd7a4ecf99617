// Package dirty keeps large buffers to be used again. A message's body passes a dozen of them on its way over three nodes, and memory that was in use a
// moment ago is quicker than any that is new, cleared or not: the runtime clears what make returns, but leaving only that out gained nothing.
package dirty
