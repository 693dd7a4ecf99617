package group

import "time"

const (
	// atOnceMin is the least number of elections at once.
	atOnceMin = 4
	// slowElection is how long an election may take before it counts as a sign that too many are under way. Of 256 at once none
	// takes as long on two processors that are free.
	slowElection = 2 * time.Second
)

// atOnce is how many elections a node has under way at once: HostConfig.ElectionsMax, unless processors, disks or links do not get through with them. Then
// each takes as long as all together, and if that is longer than votes are waited for none ends, whatever is tried again. So it is half of what was under way
// as soon as one takes too long, and one more with each that does not. The zero value is not ready.
type atOnce struct {
	most, now int
	cut       time.Time // when it was made less; what began before says no more
}

func newAtOnce(most int) atOnce { return atOnce{most: most, now: most} }

// ended notes an election that began at a time and is over, or was given up because no vote came. underWay counts all that were under way.
func (a *atOnce) ended(began time.Time, won bool, underWay func() int) {
	now := time.Now()
	switch {
	case won && now.Sub(began) < slowElection:
		a.now = min(a.now+1, a.most)
	case began.After(a.cut):
		a.now, a.cut = min(a.now, max(atOnceMin, min(a.now, underWay())/2)), now
	}
}
