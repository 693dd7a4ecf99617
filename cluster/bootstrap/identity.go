package bootstrap

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/transport"
)

// NodeID names one incarnation of a node's storage: "node-id/storage-uuid".
type NodeID = transport.NodeID

// Names of files in the data directory.
const (
	identityFile = "node.json"
	lockFile     = "lock"
)

const (
	identityVersion  = level.First // of a new folder; see Identity.SetLevel
	identityBytesMax = 64 << 10
	membersMax       = 64
)

// nodeNamePattern is what a node id may look like: it becomes a part of NodeIDs and of names
// in gossip, where other characters separate.
var nodeNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// partPattern is what the name of a part looks like: it is a folder of the data directory.
var partPattern = regexp.MustCompile(`^[a-z]{1,16}$`)

// ValidateNodeName reports why a configured node id cannot be used.
func ValidateNodeName(name string) error {
	if !nodeNamePattern.MatchString(name) {
		return fmt.Errorf("node id %q: want 1 to 63 letters, digits, dots, dashes or underscores, beginning with a letter or digit", name)
	}
	return nil
}

// Errors that callers decide by.
var (
	// ErrForeignDirectory reports that a data directory belongs to another node id.
	ErrForeignDirectory = errors.New("data directory belongs to another node")
	// ErrNotEmpty reports a directory with files but without an identity.
	ErrNotEmpty = errors.New("data directory is not empty and has no node identity")
	// ErrLocked reports that another process uses the directory.
	ErrLocked = errors.New("data directory is in use by another process")
)

// pledge names a cluster and its founding members, sorted.
type pledge struct {
	ClusterID string   `json:"id"`
	Members   []NodeID `json:"members"`
	// Copies tell, for a cluster that began from a backup, which restored folder each of the Members had then: the members' ids are those of
	// any restore of that backup. See record.Copy.
	Copies []string `json:"copies,omitempty"`
}

func (p *pledge) equal(o *pledge) bool { return p.sameCluster(o) && slices.Equal(p.Copies, o.Copies) }

// sameCluster leaves Copies aside.
func (p *pledge) sameCluster(o *pledge) bool {
	return p != nil && o != nil && p.ClusterID == o.ClusterID && slices.Equal(p.Members, o.Members)
}

// copyOf is the folder with which a member began, "" if nothing is said of it.
func (p *pledge) copyOf(id NodeID) string {
	if i := slices.Index(p.Members, id); i >= 0 && i < len(p.Copies) {
		return p.Copies[i]
	}
	return ""
}

func (p *pledge) names() []string {
	var names []string
	for _, m := range p.Members {
		names = append(names, nameOf(m))
	}
	return names
}

func nameOf(id NodeID) string {
	name, _, _ := strings.Cut(string(id), "/")
	return name
}

// record is the content of the identity file.
type record struct {
	// Version is the level of the cluster that the folder may hold something of.
	Version int    `json:"version"`
	Node    string `json:"node"`    // the configured node id
	Storage string `json:"storage"` // uuid
	// Boots counts the starts.
	Boots uint64 `json:"boots"`
	// Starts are the processes that may be the one which registered last, the newest last; see Identity.Starting.
	Starts []uint64 `json:"starts,omitempty"`
	// Promise is set while the node has promised itself to a cluster that it does not know to
	// be founded. It may be replaced.
	Promise *pledge `json:"promise,omitempty"`
	// Cluster is the cluster the node belongs to, for good. Members are the founding
	// ones; a node that joined later has none.
	Cluster *pledge `json:"cluster,omitempty"`
	// Restored is the cluster that the folder was restored for, until that has begun: with all its members at once. Copy is this folder's own uuid.
	Restored *pledge `json:"restored,omitempty"`
	Copy     string  `json:"copy,omitempty"`
	// Succession is set while the node has promised itself to a next life of its cluster, and must not vote in the present one.
	Succession *Succession `json:"succession,omitempty"`
	// Former are the ids of the cluster's lives that have ended, the newest last.
	Former []string `json:"former,omitempty"`
	// Renew are the parts that begin anew with a life that was founded.
	Renew []string `json:"renew,omitempty"`
	// Parts are the folders that were made once and must be there. nil, in files of earlier
	// versions, means that nothing is known of them.
	Parts []string `json:"parts"`
}

// Identity is a node's identity and its way into a cluster, kept in a file. One mutex
// guards it; every change is on disk before the method returns. All methods are
// safe for concurrent use.
type Identity struct {
	dir   string
	lock  *os.File
	parts []Part

	mu  sync.Mutex
	rec record

	writing sync.Mutex // held for a write, and to close
	closed  bool
	// fault, in tests, is asked before each write and fails it.
	fault func() error
}

// OpenIdentity opens the data directory of a node and counts the start. It creates
// the directory and an identity if there is nothing yet. parts are the folders in which
// others keep what must not be lost alone, see [Identity.Part].
func OpenIdentity(dir, node string, parts ...Part) (*Identity, error) {
	if err := ValidateNodeName(node); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	i := &Identity{dir: dir, lock: lock, parts: parts}
	if err := i.open(node); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return i, nil
}

func (i *Identity) open(node string) error {
	if err := i.load(node); err != nil {
		return err
	}
	if err := i.renew(); err != nil {
		return err
	}
	next := i.rec
	next.Boots++
	next.Renew = nil
	if s := next.Succession; s != nil && s.By == NodeID(next.Node+"/"+next.Storage) {
		next.Succession = nil // nobody waits for it any more, and nobody else founds it
	}
	var err error
	if next.Parts, err = i.openParts(); err != nil {
		return err
	}
	return i.store(next)
}

func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fmt.Errorf("%w: %s: a node runs in it already, another one needs a data-dir of its own", ErrLocked, dir), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), f.Close())
	}
	return f, nil
}

// load reads the identity or makes a new one in memory.
func (i *Identity) load(node string) error {
	path := filepath.Join(i.dir, identityFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := i.checkEmpty(); err != nil {
			return err
		}
		i.rec = record{Version: identityVersion, Node: node, Storage: newUUID(), Parts: []string{}}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the node's identity: %w", err)
	}
	if i.rec, err = decodeRecord(raw); err != nil {
		return fmt.Errorf("node identity %s: %w", path, err)
	}
	if i.rec.Node != node {
		return fmt.Errorf("%w: %s is node '%s', not '%s': start it with node-id %s, or give this node a data-dir of its own", ErrForeignDirectory, i.dir, i.rec.Node, node, i.rec.Node)
	}
	return nil
}

// checkEmpty accepts what a crash during the very first start, and file systems, leave in
// an empty directory.
func (i *Identity) checkEmpty() error {
	entries, err := os.ReadDir(i.dir)
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	for _, e := range entries {
		switch e.Name() {
		case lockFile, identityFile + tmpSuffix, "lost+found":
		default:
			return fmt.Errorf("%w: %s has '%s': give the node an empty data-dir, or one that is not there yet", ErrNotEmpty, i.dir, e.Name())
		}
	}
	return nil
}

func decodeRecord(raw []byte) (record, error) {
	var r record
	if len(raw) > identityBytesMax {
		return r, fmt.Errorf("%d bytes, the maximum is %d", len(raw), identityBytesMax)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("%w: it is damaged, put a copy back (an older one without its starts), or move the whole data folder aside: the node then joins as a new one", err)
	}
	if r.Version < identityVersion || r.Version > level.Now {
		return r, fmt.Errorf("version %d, this program knows version %d", r.Version, level.Now)
	}
	if err := ValidateNodeName(r.Node); err != nil {
		return r, err
	}
	if !validUUID(r.Storage) {
		return r, fmt.Errorf("storage %q is no uuid", r.Storage)
	}
	for _, p := range []*pledge{r.Promise, r.Cluster, r.Restored} {
		if p != nil && !validUUID(p.ClusterID) {
			return r, fmt.Errorf("cluster %q is no uuid", p.ClusterID)
		}
	}
	if r.Restored != nil && !validUUID(r.Copy) {
		return r, fmt.Errorf("a restored folder with the uuid %q", r.Copy)
	}
	if r.Succession != nil {
		if err := r.Succession.Validate(); err != nil {
			return r, err
		}
	}
	if slices.ContainsFunc(r.Renew, func(part string) bool { return !partPattern.MatchString(part) }) {
		return r, fmt.Errorf("parts %.200q cannot be renewed", r.Renew)
	}
	return r, nil
}

const tmpSuffix = ".tmp"

// store writes r and makes it the current record. After an error the file holds the old
// record or the new one, and memory the old one: what was not confirmed durable is not
// acted on.
func (i *Identity) store(r record) error {
	if err := i.step(); err != nil {
		return err
	}
	i.writing.Lock()
	defer i.writing.Unlock()
	if i.closed {
		return errClosed
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the node's identity: %w", err)
	}
	if err := writeDurably(filepath.Join(i.dir, identityFile), raw); err != nil {
		return fmt.Errorf("write the node's identity: %w", err)
	}
	i.rec = r
	return nil
}

// writeDurably replaces a file: written aside, synced, renamed, directory synced.
func writeDurably(path string, content []byte) error {
	f, err := os.OpenFile(path+tmpSuffix, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// errClosed refuses writes to a directory that another may have by now, in the same process too.
var errClosed = errors.New("the node's identity is closed")

// Close gives the directory free. The Identity changes nothing afterwards.
func (i *Identity) Close() error {
	i.writing.Lock()
	defer i.writing.Unlock()
	i.closed = true
	return i.lock.Close()
}

// NodeID returns the node's identity.
func (i *Identity) NodeID() NodeID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return NodeID(i.rec.Node + "/" + i.rec.Storage)
}

// Boots counts the starts of this node, this one included.
func (i *Identity) Boots() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rec.Boots
}

// ClusterID returns the cluster the node belongs to, "" while it is virgin. It has the form
// of transport.Config.ClusterID.
func (i *Identity) ClusterID() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec.Cluster == nil {
		return ""
	}
	return i.rec.Cluster.ClusterID
}

// Membership is what a node knows of its cluster.
type Membership struct {
	ClusterID string
	// Founding are the members the cluster was founded by, if this node is one of
	// them, else nil: this node has to join.
	Founding []NodeID
}

// Membership returns the node's membership; ok is false while it is virgin.
func (i *Identity) Membership() (m Membership, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.rec.Cluster == nil {
		return Membership{}, false
	}
	return Membership{i.rec.Cluster.ClusterID, slices.Clone(i.rec.Cluster.Members)}, true
}

// newUUID returns a random (version 4) uuid.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var uuidPattern = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func validUUID(s string) bool { return uuidPattern.MatchString(s) }
