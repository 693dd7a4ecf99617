package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/warrenmq/warren/cluster/level"
)

// restoringFile is in a folder that is being made from a backup, until it is whole.
const restoringFile = "RESTORING"

// ErrRestored tells that a folder is what it would be made.
var ErrRestored = errors.New("this node is restored from that backup already")

// ErrTaken tells that a folder is a node's already, and not the one that it would be made.
var ErrTaken = errors.New("data directory has a node identity")

// ErrRestoredLater tells that a cluster has begun from a backup without this folder: it was restored for a node of the same name, which has voted and
// confirmed since with another one. With this one it would not know of that.
var ErrRestoredLater = errors.New("this folder was restored after its cluster had begun with another one of this node")

// Restored is the identity of a node of a cluster that begins from a backup.
type Restored struct {
	Node, Storage, ClusterID string
	// Formerly is the id that older programs gave the cluster, "" for none: a folder that they have made is taken for done.
	Formerly string
	// Members are all nodes of the cluster.
	Members []NodeID
	// Level is that of the cluster.
	Level int
	// Parts are the folders that are made.
	Parts []string
}

// record returns the content of the identity file.
func (r *Restored) record() (record, error) {
	p := &pledge{ClusterID: r.ClusterID, Members: slices.Sorted(slices.Values(r.Members))}
	rec := record{Version: r.Level, Node: r.Node, Storage: r.Storage, Restored: p, Copy: newUUID(), Parts: r.Parts}
	self := NodeID(r.Node + "/" + r.Storage)
	switch {
	case r.Level < level.First || r.Level > level.Now:
		return rec, fmt.Errorf("level %d, this program knows level %d", r.Level, level.Now)
	case !validUUID(r.Storage):
		return rec, fmt.Errorf("storage %q is no uuid", r.Storage)
	case !slices.Contains(p.Members, self):
		return rec, fmt.Errorf("node '%s' is not among the members", self)
	}
	return rec, errors.Join(ValidateNodeName(r.Node), p.validate())
}

// Restoring is a data folder on its way to become a node's. It is the folder's only user.
type Restoring struct {
	dir      string
	rec      record
	formerly string
	lock     *os.File
}

// BeginRestore takes an empty folder, or one in which a restore was cut off and which is emptied. ErrRestored tells that all is
// done, ErrTaken or ErrNotEmpty that the folder is something else; the caller ends with Commit or Close. The parts are the caller's to make, in the folders that Part names.
func BeginRestore(dir string, as Restored) (r *Restoring, err error) {
	rec, err := as.record()
	if err != nil {
		return nil, fmt.Errorf("restore a node: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	r = &Restoring{dir: dir, rec: rec, formerly: as.Formerly, lock: lock}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Restoring) begin() error {
	raw, err := os.ReadFile(filepath.Join(r.dir, identityFile))
	switch {
	case err == nil:
		old, err := decodeRecord(raw)
		if err == nil && old.Storage == r.rec.Storage && (r.made(old.Restored) || r.made(old.Cluster)) {
			return errors.Join(ErrRestored, r.finish())
		}
		return r.taken(old, err)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the node's identity: %w", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, restoringFile)); err == nil {
		for _, p := range r.rec.Parts {
			if err := os.RemoveAll(r.Part(p)); err != nil {
				return fmt.Errorf("remove what a restore has left: %w", err)
			}
		}
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, restoringFile, restoringFile + tmpSuffix, identityFile + tmpSuffix, "lost+found":
		default:
			return fmt.Errorf("%w: %s has '%s'", ErrNotEmpty, r.dir, e.Name())
		}
	}
	if err := writeDurably(filepath.Join(r.dir, restoringFile), []byte(r.rec.Restored.ClusterID+"\n")); err != nil {
		return fmt.Errorf("mark the data directory: %w", err)
	}
	return nil
}

// taken refuses a folder that has the identity old, or one that cannot be read.
func (r *Restoring) taken(old record, err error) error {
	const advice = "give this one an empty data-dir"
	switch {
	case err != nil:
		return fmt.Errorf("%w, and it cannot be read: %s: %w", ErrTaken, r.dir, err)
	case old.Node != r.rec.Node:
		return fmt.Errorf("%w: %s is of node '%s': %s", ErrTaken, r.dir, old.Node, advice)
	case old.Restored != nil || old.Storage == r.rec.Storage:
		return fmt.Errorf("%w: %s was restored from another backup, or with other options (--nodes, --replicas, --zones, --salt): restore all nodes with the same ones, each into an empty data-dir", ErrTaken, r.dir)
	}
	return fmt.Errorf("%w: %s is this node's in another cluster: %s", ErrTaken, r.dir, advice)
}

// made tells whether a folder that was made for cluster p is what it would be made now.
func (r *Restoring) made(p *pledge) bool {
	return p.sameCluster(r.rec.Restored) || p.sameCluster(&pledge{ClusterID: r.formerly, Members: r.rec.Restored.Members})
}

// Part is the folder of a part.
func (r *Restoring) Part(name string) string { return filepath.Join(r.dir, name) }

// Commit makes the folder the node's: its parts are whole and durable. Before, no node starts on it.
func (r *Restoring) Commit() error {
	for _, p := range r.rec.Parts {
		if err := writeDurably(filepath.Join(r.Part(p), ownerFile), []byte(r.rec.Storage+"\n")); err != nil {
			return fmt.Errorf("mark %s as this node's: %w", p, err)
		}
	}
	if err := syncDir(r.dir); err != nil {
		return err
	}
	if err := (&Identity{dir: r.dir}).store(r.rec); err != nil {
		return err
	}
	return r.finish()
}

// finish removes the mark of a restore that is done.
func (r *Restoring) finish() error {
	if err := os.Remove(filepath.Join(r.dir, restoringFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(r.dir)
}

// Close gives the folder free.
func (r *Restoring) Close() error { return r.lock.Close() }
