package catalog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/level"
)

// A snapshot is the magic with a version byte, records, and CRC-32C of all before it.
// A record is its kind, the length of its fields as a varint, and the fields.
// Exchanges stand before bindings, so that routing tables can be rebuilt in one pass, and
// policies before exchanges, which they tell their alternates.
var snapshotMagic = [8]byte{'W', 'R', 'N', 'C', 'A', 'T', 'S', 1}

const (
	recordMeta       = 1
	recordVhost      = 2
	recordUser       = 3
	recordPermission = 4
	recordExchange   = 5
	recordBinding    = 6
	recordQueue      = 7
	recordNode       = 8
	recordRequest    = 9

	recordTopicPermission = 10
	recordPolicies        = 11
	recordPolicy          = 12
	recordCluster         = 13 // from here on the records belong to level 2
	recordNodeExtra       = 14
	recordQueueExtra      = 15
	recordTombstone       = 16
	recordQueueLife       = 17
	recordLife            = 18
	recordDefinitions     = 24
	recordName            = 25
	recordQueueNotes      = 26
	recordShovel          = 27
	recordEnd             = 255

	recordBytesMax = 16 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// snapshot is a view with the request log of the same moment.
type snapshot struct {
	view     *View
	requests []savedRequest
}

// Persist implements raft.FSMSnapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := s.write(sink); err != nil {
		return errors.Join(fmt.Errorf("write the catalog's snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}

// recordWriter writes records and their checksum.
type recordWriter struct {
	w    *bufio.Writer
	sum  hash.Hash32
	body fields
	head []byte
}

// record writes one record whose fields fill describes. Errors stick to the
// buffered writer and surface at its Flush.
func (r *recordWriter) record(kind byte, fill func(*fields)) {
	r.body.buf = r.body.buf[:0]
	fill(&r.body)
	r.head = binary.AppendUvarint(append(r.head[:0], kind), uint64(len(r.body.buf)))
	r.write(r.head)
	r.write(r.body.buf)
}

func (r *recordWriter) write(b []byte) {
	r.sum.Write(b)
	_, _ = r.w.Write(b) // sticky, see record
}

func (s *snapshot) write(w io.Writer) error {
	r := &recordWriter{w: bufio.NewWriterSize(w, 1<<16), sum: crc32.New(castagnoli)}
	v := s.view
	r.write(snapshotMagic[:])
	r.record(recordMeta, v.metaFields)
	if v.level > level.First {
		r.record(recordCluster, v.clusterFields)
	}
	if v.definitions != "" {
		r.record(recordDefinitions, v.definitionsFields)
	}
	if v.name != "" {
		r.record(recordName, v.nameFields)
	}
	for i := range v.lives {
		r.record(recordLife, v.lives[i].fields)
	}
	for h := range v.vhosts.all() {
		r.record(recordVhost, h.fields)
	}
	s.writePolicies(r)
	for u := range v.users.all() {
		r.record(recordUser, func(f *fields) { userFields(f, u) })
	}
	for p := range v.permissions.all() {
		r.record(recordPermission, permissionRecord(p).fields)
	}
	for p := range v.topics.all() {
		r.record(recordTopicPermission, topicRecord(p).fields)
	}
	for s := range v.shovels.all() {
		r.record(recordShovel, s.fields)
	}
	for x := range v.exchanges.all() {
		r.record(recordExchange, x.fields)
	}
	for b := range v.bySource.all() {
		r.record(recordBinding, b.fields)
	}
	for q := range v.queuesByID.all() {
		r.record(recordQueue, q.fields)
	}
	for q := range v.queuesByID.all() {
		if q.hasExtra() {
			r.record(recordQueueExtra, q.extraFields)
		}
	}
	for q := range v.queuesByID.all() {
		if len(q.Former) > 0 {
			r.record(recordQueueLife, q.lifeFields)
		}
	}
	for q := range v.queuesByID.all() {
		if q.hasNotes() {
			r.record(recordQueueNotes, q.noteFields)
		}
	}
	for n := range v.nodes.all() {
		r.record(recordNode, n.fields)
	}
	for n := range v.nodes.all() {
		if n.hasExtra() {
			r.record(recordNodeExtra, n.extraFields)
		}
	}
	for t := range v.forgotten.all() {
		r.record(recordTombstone, t.fields)
	}
	for i := range s.requests {
		r.record(recordRequest, s.requests[i].fields)
	}
	r.record(recordEnd, func(*fields) {})
	_, _ = r.w.Write(binary.BigEndian.AppendUint32(nil, r.sum.Sum32())) // sticky, see record
	return r.w.Flush()
}

func (v *View) metaFields(f *fields) {
	f.u64(&v.revision)
	str(f, &v.clusterID)
	f.u32(&v.nodeNumber)
}

// clusterFields are what the cluster has beside its name since level 2.
func (v *View) clusterFields(f *fields) {
	n := uint64(v.level)
	f.u64(&n)
	if f.reading && f.err == nil {
		if n <= level.First || n > uint64(level.Now) {
			f.fail("the cluster is at level %d, this program knows level %d", n, level.Now)
			return
		}
		v.level = int(n)
	}
}

func permissionRecord(p *auth.Permission) *PutPermission {
	return &PutPermission{Vhost: p.Vhost, User: p.User, Configure: p.Pattern(auth.Configure), Write: p.Pattern(auth.Write), Read: p.Pattern(auth.Read)}
}

func (r *savedRequest) fields(f *fields) {
	f.fixed(r.id[:])
	r.o.fields(f)
}
