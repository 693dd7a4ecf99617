// Package cut takes a consistent backup of a running cluster.
//
// Restored, every dead letter that was in exactly one place has to be in exactly one place again. For each pair of a source and a target
// that asks for
//
//	what the source has dropped <= what the target has taken < what the source has numbered
//
// of the states that are taken, which are those of different moments. So the moves between queues stand still meanwhile, and nothing else does:
//
//  1. Hold: every node that can be reached closes its gate (package dlx/mover): nothing is sent to other queues, and nothing is concluded from
//     what they answer. Then it says what it leads, in which terms.
//  2. Capture: each queue's state is taken where it is led, in that term. A state is a manifest and what it needs of the log.
//  3. The catalog is read, up to date: nothing that was captured knows of anything newer.
//  4. Release: every gate has been closed all the time, or the cut is void.
//  5. Confirm: each queue is still led where its state was taken, in that term, which a quorum of its voters proves. So nobody else has led it
//     since step 1, whichever node could not be reached.
//
// A cut that is void is taken anew, a few times; each second time step 5 comes before step 3, so that queues that are deleted meanwhile do no
// harm. The bytes are fetched afterwards, from leaders or not: what was captured stays until it is dropped. docs/adr/0030-backups.md has the argument.
//
// A [Node] is the side of each node; [Take] is done by the one that is asked for a backup.
package cut
