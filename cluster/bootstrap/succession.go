package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/warrenmq/warren/cluster/level"
)

// successionLevel is the level whose programs know of successions. A folder that has promised itself to one is stamped with it: an older
// program would go on to vote.
const successionLevel = 2

// formerMax bounds the former lives that a node remembers: the oldest goes.
const formerMax = 64

// nextSuffix ends the name of the folder that is to take a part's place, formerSuffix that of the one that had it before.
const (
	nextSuffix   = ".next"
	formerSuffix = ".former"
)

// Succession is the next life of a cluster that has lost the majority of its catalog for good, in the making (docs/adr/0034-lost-cluster.md). It has
// another cluster id, so that nobody of the present life is let in.
type Succession struct {
	ID     string `json:"id"`     // of the cluster in its next life
	Former string `json:"former"` // of its present one
	// By asks for it, and alone decides whether it is founded.
	By NodeID `json:"by"`
	// Members go on, Lost do not; both are sorted.
	Members []NodeID `json:"members"`
	Lost    []NodeID `json:"lost"`
	// Ready: this node has what it is to go on from.
	Ready bool `json:"ready,omitempty"`
}

// Validate checks what came from outside.
func (s *Succession) Validate() error {
	members := pledge{ClusterID: s.ID, Members: s.Members}
	if err := members.validate(); err != nil {
		return err
	}
	switch {
	case !validUUID(s.Former) || s.Former == s.ID:
		return fmt.Errorf("former cluster %.64q cannot be", s.Former)
	case !slices.Contains(s.Members, s.By):
		return fmt.Errorf("node %.200q asks and is no member", s.By)
	case len(s.Lost) == 0 || len(s.Lost) > membersMax:
		return fmt.Errorf("%d lost nodes", len(s.Lost))
	}
	for i, n := range s.Lost {
		if i > 0 && s.Lost[i-1] >= n || slices.Contains(s.Members, n) || len(n) > nodeIDBytesMax {
			return errors.New("lost nodes are not sorted, or go on")
		}
	}
	return nil
}

const nodeIDBytesMax = 200

// Succession returns what the node has promised itself to, nil if nothing.
func (i *Identity) Succession() *Succession {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec.Succession == nil {
		return nil
	}
	s := *i.rec.Succession
	return &s
}

// Former returns the ids of the cluster's lives that have ended, the newest last.
func (i *Identity) Former() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.rec.Former)
}

// PromiseSuccession binds the node to a next life of its cluster: from now on it must not vote or answer in the present one's catalog, also after
// a restart. An earlier promise is replaced only by one of the same node, or of one that says that node to be lost: a node that is
// there says itself whether it has founded what it was promised.
func (i *Identity) PromiseSuccession(s Succession) error {
	if err := s.Validate(); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	self, old := NodeID(i.rec.Node+"/"+i.rec.Storage), i.rec.Succession
	switch {
	case level.Now < successionLevel:
		return fmt.Errorf("%w: this program knows level %d", errRefused, level.Now)
	case i.rec.Cluster == nil || i.rec.Cluster.ClusterID != s.Former:
		return fmt.Errorf("%w: node '%s' does not belong to cluster %s", errRefused, self, s.Former)
	case !slices.Contains(s.Members, self):
		return fmt.Errorf("%w: node '%s' is not among those that go on", errRefused, self)
	case old != nil && old.ID == s.ID:
		return nil
	case old != nil && old.By != s.By && !slices.Contains(s.Lost, old.By):
		return fmt.Errorf("%w: the cluster is being recovered by node '%s' already: wait until it has given up, or name it as lost", errRefused, old.By)
	}
	next := i.rec
	s.Ready = false
	next.Succession, next.Version = &s, max(next.Version, successionLevel)
	return i.store(next)
}

// ReadySuccession has the named part of the next life made, in a folder of its own, durably, and notes that. Before, the succession cannot
// be founded here. One caller at a time.
func (i *Identity) ReadySuccession(id, part string, make func(dir string) error) error {
	if _, err := i.promised(id); err != nil {
		return err
	}
	dir := i.partDir(part) + nextSuffix
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier recovery has left: %w", err)
	}
	if err := i.step(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := make(dir); err != nil {
		return err
	}
	if err := i.step(); err != nil {
		return err
	}
	if err := i.claim(dir); err != nil {
		return err
	}
	ready, err := i.promised(id)
	if err != nil {
		return err
	}
	ready.Ready = true
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec.Succession == nil || i.rec.Succession.ID != id {
		return fmt.Errorf("%w: another promise came in between", errRefused)
	}
	next := i.rec
	next.Succession = &ready
	return i.store(next)
}

// promised returns the succession of that id if the node has promised itself to it.
func (i *Identity) promised(id string) (Succession, error) {
	s := i.Succession()
	if s == nil || s.ID != id {
		return Succession{}, fmt.Errorf("%w: this node has not promised itself to cluster %s", errRefused, id)
	}
	return *s, nil
}

// FoundSuccession takes the node into the next life: for By that is the decision. The named part takes its place when the directory is
// opened again, which is to be done at once. It does nothing if the node is there already.
func (i *Identity) FoundSuccession(id, part string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := i.rec.Succession
	switch {
	case i.rec.Cluster != nil && i.rec.Cluster.ClusterID == id:
		return nil
	case s == nil || s.ID != id:
		return fmt.Errorf("%w: this node has not promised itself to cluster %s", errRefused, id)
	case !s.Ready:
		return fmt.Errorf("%w: this node does not have what cluster %s goes on from", errRefused, id)
	}
	next := i.rec
	next.Cluster, next.Succession = &pledge{ClusterID: s.ID, Members: s.Members}, nil
	next.Former = append(slices.Clone(next.Former), s.Former)
	if extra := len(next.Former) - formerMax; extra > 0 {
		next.Former = next.Former[extra:]
	}
	next.Renew = []string{part}
	return i.store(next)
}

// DropSuccession takes a promise back. It is for By, which will not found then, and for those who have heard that from By.
func (i *Identity) DropSuccession(id string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.rec.Succession; s == nil || s.ID != id {
		return nil
	}
	next := i.rec
	next.Succession = nil
	return i.store(next)
}

// renew puts the folders of a life that was founded in their places. Every step can be repeated.
func (i *Identity) renew() error {
	for _, part := range i.rec.Renew {
		dir := i.partDir(part)
		if _, err := os.Stat(dir + nextSuffix); errors.Is(err, fs.ErrNotExist) {
			continue // it is there already
		} else if err != nil {
			return err
		}
		if _, err := os.Stat(dir); err == nil {
			if err := os.RemoveAll(dir + formerSuffix); err != nil {
				return fmt.Errorf("remove what a former life has left: %w", err)
			}
			if err := i.step(); err != nil {
				return err
			}
			if err := os.Rename(dir, dir+formerSuffix); err != nil {
				return fmt.Errorf("put the former life aside: %w", err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := i.step(); err != nil {
			return err
		}
		if err := os.Rename(dir+nextSuffix, dir); err != nil {
			return fmt.Errorf("begin the next life: %w", err)
		}
		if err := i.step(); err != nil {
			return err
		}
	}
	return syncDir(i.dir)
}

// Fate is what another node's status means for this one.
type Fate uint8

// The fates.
const (
	// FateOpen: nothing follows from it.
	FateOpen Fate = iota
	// FateFounded: the life that this node has promised itself to is founded. FoundSuccession is to be called.
	FateFounded
	// FateAbandoned: the node that asked for it has given it up. DropSuccession is to be called.
	FateAbandoned
	// FateLost: the cluster goes on in another life without this storage.
	FateLost
)

// Consider says what a node's answer to MethodStatus means for this one; id is that of the succession that was founded or abandoned, which
// need not be promised; why is for people. promised is what Succession returned before the
// question was sent: an answer from before a promise says nothing about it.
func (i *Identity) Consider(promised *Succession, answer []byte) (f Fate, id, why string, err error) {
	s, err := decodeStatus(answer)
	if err != nil {
		return FateOpen, "", "", err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	own, mine := i.rec.Succession, i.rec.Cluster
	if mine == nil || s.Cluster == nil {
		return FateOpen, "", "", nil
	}
	if own != nil && s.Cluster.ClusterID == own.ID && own.Ready {
		return FateFounded, own.ID, fmt.Sprintf("node '%s' has it", s.Node), nil
	}
	if slices.Contains(s.Former, mine.ClusterID) {
		return FateLost, "", fmt.Sprintf("node '%s' says that cluster %s goes on as %s, without this storage: an operator has said that it is lost", s.Node, mine.ClusterID, s.Cluster.ClusterID), nil
	}
	if own != nil && promised != nil && promised.ID == own.ID && s.Node == own.By && s.Cluster.ClusterID == mine.ClusterID && (s.Succession == nil || s.Succession.ID != own.ID) {
		return FateAbandoned, own.ID, fmt.Sprintf("node '%s' has given it up", s.Node), nil
	}
	return FateOpen, "", "", nil
}
