package main

import (
	"testing"
	"time"
)

// A node keeps to one processor while it has little to do, and has all of them at the next look once it has more.
func TestCrew(t *testing.T) {
	const tick = crewPeriod
	quiet := int(crewQuiet / tick)
	type stretch struct {
		what  string
		looks int           // until one is true or false
		cpu   time.Duration // used in each
		syncs uint64
		disk  time.Duration // that all syncs of a look took
		late  time.Duration
		tardy time.Duration
		live  uint64
		one   bool // at the end
	}
	light := stretch{"light work", quiet + 1, 5 * time.Millisecond, 20, 4 * time.Millisecond, 0, 0, 20 << 20, true}
	with := func(s stretch, what string, looks int, one bool, f func(*stretch)) stretch {
		s.what, s.looks, s.one = what, looks, one
		if f != nil {
			f(&s)
		}
		return s
	}
	busy := with(light, "a busy moment", 1, false, func(s *stretch) { s.cpu = 17 * time.Millisecond })
	for what, course := range map[string][]stretch{
		"begins with all":                     {with(light, "the start", 1, false, nil), with(light, "less than a second", quiet-1, false, nil)},
		"one after a quiet second":            {light},
		"all at once":                         {light, busy},
		"all for a second":                    {light, busy, with(light, "a second", quiet-1, false, nil), with(light, "and more", 1, true, nil)},
		"half a processor may stay":           {light, with(light, "somewhat more", 10*quiet, true, func(s *stretch) { s.cpu = 11 * time.Millisecond })},
		"and does not come":                   {with(light, "more", 10*quiet, false, func(s *stretch) { s.cpu = 13 * time.Millisecond })},
		"the disk takes the processor":        {light, with(light, "many syncs", crewRow, false, func(s *stretch) { s.syncs, s.disk, s.cpu = 90, 13*time.Millisecond, 7*time.Millisecond })},
		"and stays":                           {light, with(light, "syncs of 0.6 ms", 10*quiet, true, func(s *stretch) { s.syncs, s.disk, s.cpu = 16, 10*time.Millisecond, 7*time.Millisecond })},
		"a moment in full use":                {light, with(light, "many syncs", crewRow-1, true, func(s *stretch) { s.syncs, s.disk, s.cpu = 90, 13*time.Millisecond, 7*time.Millisecond })},
		"a disk that takes its time":          {with(light, "syncs of 0.6 ms", quiet+1, true, func(s *stretch) { s.syncs, s.disk, s.cpu = 20, 12*time.Millisecond, 8*time.Millisecond })},
		"one long sync":                       {light, with(light, "a sync of 19 ms", 1, true, func(s *stretch) { s.syncs, s.disk = 1, 19*time.Millisecond })},
		"always computing or at a sync":       {light, with(light, "syncs of 0.9 ms", 2*int(crewWhile/tick)-1, false, func(s *stretch) { s.syncs, s.disk, s.cpu = 11, 10*time.Millisecond, 10*time.Millisecond })},
		"computing and syncing at once":       {with(light, "more than one has time for", 10*quiet, false, func(s *stretch) { s.syncs, s.disk, s.cpu = 13, 12*time.Millisecond, 11*time.Millisecond })},
		"a slow disk":                         {with(light, "slow syncs", 10*quiet, false, func(s *stretch) { s.syncs, s.disk, s.cpu = 5, 6*time.Millisecond, time.Millisecond })},
		"a disk that becomes slow":            {light, with(light, "slow syncs", quiet, false, func(s *stretch) { s.syncs, s.disk, s.cpu = 5, 6*time.Millisecond, time.Millisecond })},
		"a sync that hangs":                   {light, with(light, "a sync", 1, false, func(s *stretch) { s.late = crewSyncLate })},
		"looks come late":                     {light, with(light, "a computation", 1, false, func(s *stretch) { s.tardy = crewTardy })},
		"looks come a little late":            {light, with(light, "a computation", 2*quiet, true, func(s *stretch) { s.tardy = crewTardy - 1 })},
		"much is alive":                       {with(light, "many queues", 10*quiet, false, func(s *stretch) { s.live = crewLiveMax + 1 })},
		"much has become alive":               {light, with(light, "many queues", quiet, false, func(s *stretch) { s.live = crewLiveMax + 1 })},
		"idle":                                {with(light, "nothing", quiet+1, true, func(s *stretch) { s.cpu, s.syncs, s.disk = 0, 0, 0 })},
		"busy again and again is never quiet": {busy, with(light, "half a second", quiet/2, false, nil), busy, with(light, "half a second", quiet/2+1, false, nil)},
	} {
		t.Run(what, func(t *testing.T) {
			var c crew
			now := work{at: time.Unix(1_700_000_000, 0)}
			for _, s := range course {
				var one bool
				for range s.looks {
					now.at = now.at.Add(tick)
					now.cpu, now.syncs, now.disk = now.cpu+s.cpu, now.syncs+s.syncs, now.disk+s.disk
					now.late, now.tardy, now.live = s.late, s.tardy, s.live
					one, _ = c.look(now)
				}
				if one != s.one {
					t.Fatalf("after %s: one processor: %t", s.what, one)
				}
			}
		})
	}
}

// Looks are rare where nothing is to be seen.
func TestCrewRests(t *testing.T) {
	var c crew
	now := work{at: time.Unix(1_700_000_000, 0)}
	var next time.Duration
	look := func(cpu time.Duration, times int) {
		for range times {
			now.at, now.cpu = now.at.Add(crewPeriod), now.cpu+cpu
			_, next = c.look(now)
		}
	}
	if look(0, 10); next != crewPeriod {
		t.Errorf("with all processors the next look comes after %v", next)
	}
	if look(0, int(crewQuiet/crewPeriod)); next != crewRest {
		t.Errorf("idle, the next look comes after %v", next)
	}
	if look(crewPeriod/10, 1); next != crewPeriod {
		t.Errorf("at work, the next look comes after %v", next)
	}
}
