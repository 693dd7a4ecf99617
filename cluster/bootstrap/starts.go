package bootstrap

import (
	"errors"
	"fmt"
	"slices"
)

// startsMax is how many starts a folder remembers.
const startsMax = 32

// ErrOlder reports a folder that is older than what its node had: an older copy was put back, or the folder was copied and another process goes on with
// the other one. With this one the node would not know what it has confirmed and whom it has voted for since.
var ErrOlder = errors.New("the data folder is older than what the node had")

// Starting notes, before a process registers with the cluster, that it does. Both are random numbers of processes: process is of this one, last of the one that
// registered last, as the cluster knows it, 0 if none is known. A folder that does not know that one is ErrOlder.
//
// A folder that was written by a program without such notes has none, and is taken as it is.
func (i *Identity) Starting(process, last uint64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	starts := i.rec.Starts
	if last != 0 && len(starts) > 0 && !slices.Contains(starts, last) {
		return fmt.Errorf("%w: it has started since then with a newer state of it: put the newest one back, or wipe the whole of %s, the node then joins as a new one",
			ErrOlder, i.dir)
	}
	if slices.Contains(starts, process) {
		return nil
	}
	starts = append(slices.Clone(starts), process)
	if len(starts) > startsMax { // processes that end before they have registered do not push out the one that has
		oldest := slices.IndexFunc(starts, func(p uint64) bool { return p != last })
		starts = slices.Delete(starts, oldest, oldest+1)
	}
	next := i.rec
	next.Starts = starts
	return i.store(next)
}
