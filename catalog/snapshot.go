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
	"github.com/warrenmq/warren/exchange"
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

// summedReader keeps the checksum of what was read through it.
type summedReader struct {
	r   *bufio.Reader
	sum hash.Hash32
}

func (s *summedReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.sum.Write(b[:n])
	return n, err
}

func (s *summedReader) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		s.sum.Write([]byte{b})
	}
	return b, err
}

// readSnapshot is the inverse of snapshot.write. The error wraps [ErrMalformed]
// unless reading failed.
func readSnapshot(r io.Reader) (*View, *requestLog, error) {
	in := &summedReader{r: bufio.NewReaderSize(r, 1<<16), sum: crc32.New(castagnoli)}
	var magic [8]byte
	if _, err := io.ReadFull(in, magic[:]); err != nil {
		return nil, nil, fmt.Errorf("%w: snapshot without a head: %w", ErrMalformed, err)
	}
	if magic != snapshotMagic {
		return nil, nil, fmt.Errorf("%w: snapshot begins with %q", ErrMalformed, magic[:])
	}
	// The view is built through a txn, which knows how to keep its indexes in step.
	tx := begin(emptyView(), 0)
	tx.beginBulk()
	requests := newRequestLog()
	for {
		kind, f, err := readRecord(in)
		if err != nil {
			return nil, nil, err
		}
		if kind == recordEnd {
			break
		}
		if err := tx.restore(kind, f, requests); err != nil {
			return nil, nil, err
		}
	}
	want := in.sum.Sum32()
	var sum [4]byte
	if _, err := io.ReadFull(in.r, sum[:]); err != nil {
		return nil, nil, fmt.Errorf("%w: snapshot without a checksum: %w", ErrMalformed, err)
	}
	if got := binary.BigEndian.Uint32(sum[:]); got != want {
		return nil, nil, fmt.Errorf("%w: snapshot's checksum is %08x, want %08x", ErrMalformed, got, want)
	}
	tx.commitBulk()
	v := tx.View
	v.changes, v.full = nil, v.revision
	return &v, requests, nil
}

func readRecord(in *summedReader) (kind byte, f *fields, err error) {
	if kind, err = in.ReadByte(); err != nil {
		return 0, nil, fmt.Errorf("%w: snapshot ends between records: %w", ErrMalformed, err)
	}
	n, err := binary.ReadUvarint(in)
	if err != nil || n > recordBytesMax {
		return 0, nil, fmt.Errorf("%w: length %d of a record of kind %d: %w", ErrMalformed, n, kind, err)
	}
	// Grows with what is there: a wrong length must not cost its memory.
	b, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err != nil {
		return 0, nil, fmt.Errorf("read a record: %w", err)
	}
	if uint64(len(b)) < n {
		return 0, nil, fmt.Errorf("%w: snapshot ends within a record of kind %d", ErrMalformed, kind)
	}
	return kind, &fields{buf: b, reading: true}, nil
}

// restore adds one record to the view.
func (tx *txn) restore(kind byte, f *fields, requests *requestLog) error {
	malformed := func(format string, args ...any) error {
		return fmt.Errorf("%w: record of kind %d: %s", ErrMalformed, kind, fmt.Sprintf(format, args...))
	}
	switch kind {
	case recordMeta:
		tx.metaFields(f)
	case recordCluster:
		tx.clusterFields(f)
	case recordDefinitions:
		tx.definitionsFields(f)
	case recordName:
		tx.nameFields(f)
	case recordLife:
		var l Life
		l.fields(f)
		if f.err == nil && (len(tx.lives) >= livesOfClusterMax || l.Last >= l.Begun || l.Begun > tx.revision) {
			return malformed("former life %q of the cluster", l.ClusterID)
		}
		tx.lives = append(tx.lives, l)
	case recordVhost:
		h := new(Vhost)
		h.fields(f)
		tx.vhosts.put(key(h.Name), h)
	case recordPolicies:
		if err := tx.restorePolicies(f); err != nil {
			return malformed("%v", err)
		}
	case recordPolicy:
		if err := tx.restorePolicy(f); err != nil {
			return malformed("%v", err)
		}
	case recordUser:
		u := new(auth.User)
		userFields(f, u)
		tx.users.put(key(u.Name), u)
	case recordPermission:
		var c PutPermission
		c.fields(f)
		p, err := auth.NewPermission(c.User, c.Vhost, c.Configure, c.Write, c.Read)
		if err != nil {
			return malformed("%v", err)
		}
		tx.permissions.put(key(p.Vhost, p.User), p)
	case recordTopicPermission:
		var c PutTopicPermission
		c.fields(f)
		p, err := c.compile()
		if err != nil {
			return malformed("%v", err)
		}
		tx.topics.put(topicKey(p), p)
	case recordExchange:
		x := new(Exchange)
		x.fields(f)
		if f.err == nil {
			if err := exchange.Validate(x.Type, x.Arguments); err != nil {
				return malformed("%v", err)
			}
			x.alternate = tx.alternate(x)
			tx.putExchange(x)
		}
	case recordBinding:
		b := new(Binding)
		b.fields(f)
		source := tx.Exchange(b.Vhost, b.Source)
		if f.err == nil && (source == nil || tx.Binding(b) != nil) {
			return malformed("binding %+v without a source, or twice", *b)
		}
		if f.err == nil {
			if err := exchange.ValidateBinding(source.Type, source.Arguments, b.Key, b.Arguments); err != nil {
				return malformed("%v", err)
			}
			tx.bySource.put(b.sourceKey(), b)
			tx.byDestination.put(b.destinationKey(), b)
			// The view is nobody's yet, so the exchange may be changed in place.
			source.table = source.table.Add(b.routing())
			source.bindings++
		}
	case recordQueue:
		q := new(Queue)
		q.fields(f)
		if f.err == nil {
			if len(q.Members) == 0 {
				return malformed("queue %d without members", q.ID)
			}
			tx.putQueue(q)
		}
	case recordNode:
		n := new(Node)
		n.fields(f)
		tx.putNode(n)
	case recordNodeExtra, recordQueueExtra, recordTombstone:
		if problem := tx.restoreExtra(kind, f); problem != "" {
			return malformed("%s", problem)
		}
	case recordQueueLife:
		if problem := tx.restoreLife(f); problem != "" {
			return malformed("%s", problem)
		}
	case recordQueueNotes:
		if problem := tx.restoreNotes(f); problem != "" {
			return malformed("%s", problem)
		}
	case recordRequest:
		var r savedRequest
		r.fields(f)
		requests.add(r.id, r.o)
	default:
		return malformed("unknown kind")
	}
	return f.end()
}

func (tx *txn) beginBulk() {
	tx.vhosts.begin()
	tx.users.begin()
	tx.permissions.begin()
	tx.topics.begin()
	tx.exchanges.begin()
	tx.bySource.begin()
	tx.byDestination.begin()
	tx.queues.begin()
	tx.queuesByID.begin()
	tx.nodes.begin()
	tx.nodesByNumber.begin()
	tx.forgotten.begin()
	tx.named.begin()
	tx.replicas.begin()
	tx.transients.begin()
	tx.former.begin()
	tx.fleeting.begin()
}

func (tx *txn) commitBulk() {
	tx.vhosts.commit()
	tx.users.commit()
	tx.permissions.commit()
	tx.topics.commit()
	tx.exchanges.commit()
	tx.bySource.commit()
	tx.byDestination.commit()
	tx.queues.commit()
	tx.queuesByID.commit()
	tx.nodes.commit()
	tx.nodesByNumber.commit()
	tx.forgotten.commit()
	tx.named.commit()
	tx.replicas.commit()
	tx.transients.commit()
	tx.former.commit()
	tx.fleeting.commit()
}
