package restore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// The parts of a data folder.
const (
	partLog     = "log"
	partCatalog = "catalog"
)

// Result is what Run has made.
type Result struct {
	Header    backup.Header
	ClusterID string
	NodeID    string
	// Queues are those in the new cluster, Held those of which this node has a replica.
	Queues, Held int
}

// Run makes dir the data folder of the node of that name. The error is bootstrap.ErrRestored, with a result, if it is that already,
// bootstrap.ErrTaken or ErrNotEmpty if it is something else, and matches backup.ErrMalformed if the backup is to blame. After an error the folder is no node's; Run
// can be done again.
func Run(from io.Reader, dir, name string, o Options, log *slog.Logger) (res Result, err error) {
	if err := o.Validate(); err != nil {
		return res, err
	}
	in, err := backup.Open(from)
	if err != nil {
		return res, err
	}
	p := newPlan(&in.Header, &o)
	self := p.node(name)
	if self == nil {
		return res, fmt.Errorf("node '%s' is not among the nodes", name)
	}
	res = Result{Header: in.Header, ClusterID: p.clusterID, NodeID: string(self.id)}
	as := bootstrap.Restored{Node: name, Storage: self.storage, ClusterID: p.clusterID, Formerly: p.formerly, Level: in.Header.Level, Parts: []string{partLog, partCatalog}}
	for _, n := range p.nodes {
		as.Members = append(as.Members, n.id)
	}
	folder, err := bootstrap.BeginRestore(dir, as)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	view, err := readCatalog(in, p)
	if err != nil {
		return res, err
	}
	if view.Level() != in.Header.Level {
		return res, fmt.Errorf("%w: its catalog is of level %d, its header of level %d", backup.ErrMalformed, view.Level(), in.Header.Level)
	}
	w := &writer{p: p, self: self.id}
	if err := w.open(folder.Part(partLog), log); err != nil {
		return res, err
	}
	err = errors.Join(w.all(in), w.close())
	if err != nil {
		return res, err
	}
	res.Queues, res.Held = len(p.members), w.held
	if err := catalog.MakeRestored(folder.Part(partCatalog), view); err != nil {
		return res, err
	}
	return res, folder.Commit()
}

// readCatalog reads the first part and makes it the new cluster's.
func readCatalog(in *backup.Reader, p *plan) (*catalog.View, error) {
	part, err := in.Next()
	if err != nil {
		return nil, err
	}
	from := &reader{r: part}
	view, err := catalog.Rehome(from, p.rehoming())
	switch {
	case from.err != nil:
		return nil, from.err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", backup.ErrMalformed, err)
	}
	return view, nil
}

// reader remembers why a part could not be read.
type reader struct {
	r   io.Reader
	err error
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// writer fills the log of a node.
type writer struct {
	p     *plan
	self  catalog.NodeID
	store *store.Store
	held  int

	closing sync.WaitGroup
	places  chan struct{} // of sinks that are being closed

	mu     sync.Mutex
	failed error
}

// closingMax bounds the sinks that wait for the disk at a time.
const closingMax = 32

func (w *writer) open(dir string, log *slog.Logger) (err error) {
	w.places = make(chan struct{}, closingMax)
	w.store, err = store.Open(store.Options{Dir: dir, FS: store.OSFS{}, Logger: log, OnFatal: func(err error) { w.fail(err) }})
	return err
}

func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = errors.Join(w.failed, err)
}

func (w *writer) err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// all writes every queue that this node has, and reads the backup to its end.
func (w *writer) all(in *backup.Reader) error {
	for {
		part, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.err()
		}
		if err != nil {
			return err
		}
		members := w.p.members[part.Queue.ID]
		if !slices.Contains(members, w.self) {
			continue
		}
		if err := w.queue(part, members); err != nil {
			return fmt.Errorf("queue %d ('%s' in vhost '%s'): %w", part.Queue.ID, part.Queue.Name, part.Queue.VHost, err)
		}
		w.held++
	}
}

// queue writes what every replica of a queue begins with: the snapshot, and a term that is not lower than any that the snapshot knows.
func (w *writer) queue(part *backup.Part, members []catalog.NodeID) error {
	q := part.Queue
	g := w.store.Group(store.GroupID(q.ID))
	var c raft.Configuration
	for _, m := range slices.Sorted(slices.Values(members)) {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(transport.Replica(m, 0)), Address: raft.ServerAddress(m),
		})
	}
	sink, err := g.Snapshots().Create(raft.SnapshotVersionMax, q.Index, q.Term, c, q.Index, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(sink, part); err != nil {
		if errors.Is(err, store.ErrSnapshotStream) {
			err = fmt.Errorf("%w: %w", backup.ErrMalformed, err)
		}
		return errors.Join(err, sink.Cancel())
	}
	w.places <- struct{}{}
	w.closing.Go(func() {
		defer func() { <-w.places }()
		if err := errors.Join(g.SetUint64([]byte("CurrentTerm"), q.Term), sink.Close()); err != nil {
			w.fail(err)
		}
	})
	return nil
}

// close waits until all is durable.
func (w *writer) close() error {
	w.closing.Wait()
	return errors.Join(w.store.Close(), w.err())
}
