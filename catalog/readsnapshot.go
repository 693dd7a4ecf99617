package catalog

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

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

// restore adds one record to the view. The error wraps [ErrMalformed].
func (tx *txn) restore(kind byte, f *fields, requests *requestLog) error {
	problem, known := tx.restoreCluster(kind, f)
	if !known {
		problem, known = tx.restoreAccess(kind, f)
	}
	if !known {
		problem, known = tx.restoreRouting(kind, f)
	}
	if !known {
		if kind != recordRequest {
			return fmt.Errorf("%w: record of kind %d: unknown kind", ErrMalformed, kind)
		}
		var r savedRequest
		r.fields(f)
		requests.add(r.id, r.o)
	}
	if problem != "" {
		return fmt.Errorf("%w: record of kind %d: %s", ErrMalformed, kind, problem)
	}
	return f.end()
}

// restoreCluster adds what the cluster and its nodes are. known is whether the record is of such a kind.
func (tx *txn) restoreCluster(kind byte, f *fields) (problem string, known bool) {
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
			return fmt.Sprintf("former life %q of the cluster", l.ClusterID), true
		}
		tx.lives = append(tx.lives, l)
	case recordNode:
		n := new(Node)
		n.fields(f)
		tx.putNode(n)
	case recordNodeExtra, recordQueueExtra, recordTombstone:
		return tx.restoreExtra(kind, f), true
	case recordQueueLife:
		return tx.restoreLife(f), true
	case recordQueueNotes:
		return tx.restoreNotes(f), true
	default:
		return "", false
	}
	return "", true
}

// restoreAccess adds virtual hosts with their policies, and users with what they may do. known is as in restoreCluster.
func (tx *txn) restoreAccess(kind byte, f *fields) (problem string, known bool) {
	var err error
	switch kind {
	case recordVhost:
		h := new(Vhost)
		h.fields(f)
		tx.vhosts.put(key(h.Name), h)
	case recordPolicies:
		err = tx.restorePolicies(f)
	case recordPolicy:
		err = tx.restorePolicy(f)
	case recordUser:
		u := new(auth.User)
		userFields(f, u)
		tx.users.put(key(u.Name), u)
	case recordPermission:
		var c PutPermission
		var p *auth.Permission
		c.fields(f)
		if p, err = auth.NewPermission(c.User, c.Vhost, c.Configure, c.Write, c.Read); err == nil {
			tx.permissions.put(key(p.Vhost, p.User), p)
		}
	case recordTopicPermission:
		var c PutTopicPermission
		c.fields(f)
		p, e := c.compile()
		if err = e; err == nil {
			tx.topics.put(topicKey(p), p)
		}
	case recordShovel:
		return tx.restoreShovel(f), true
	default:
		return "", false
	}
	if err != nil {
		problem = err.Error()
	}
	return problem, true
}

// restoreRouting adds exchanges, bindings and queues. known is as in restoreCluster.
func (tx *txn) restoreRouting(kind byte, f *fields) (problem string, known bool) {
	switch kind {
	case recordExchange:
		x := new(Exchange)
		if x.fields(f); f.err != nil {
			return "", true
		}
		if err := exchange.Validate(x.Type, x.Arguments); err != nil {
			return err.Error(), true
		}
		x.alternate = tx.alternate(x)
		tx.putExchange(x)
	case recordBinding:
		b := new(Binding)
		if b.fields(f); f.err == nil {
			problem = tx.restoreBinding(b)
		}
	case recordQueue:
		q := new(Queue)
		if q.fields(f); f.err != nil {
			return "", true
		}
		if len(q.Members) == 0 {
			return fmt.Sprintf("queue %d without members", q.ID), true
		}
		tx.putQueue(q)
	default:
		return "", false
	}
	return problem, true
}

func (tx *txn) restoreBinding(b *Binding) (problem string) {
	source := tx.Exchange(b.Vhost, b.Source)
	if source == nil || tx.Binding(b) != nil {
		return fmt.Sprintf("binding %+v without a source, or twice", *b)
	}
	if err := exchange.ValidateBinding(source.Type, source.Arguments, b.Key, b.Arguments); err != nil {
		return err.Error()
	}
	tx.bySource.put(b.sourceKey(), b)
	tx.byDestination.put(b.destinationKey(), b)
	// The view is nobody's yet, so the exchange may be changed in place.
	source.table = source.table.Add(b.routing())
	source.bindings++
	return ""
}

func (tx *txn) beginBulk() {
	tx.vhosts.begin()
	tx.users.begin()
	tx.permissions.begin()
	tx.topics.begin()
	tx.shovels.begin()
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
	tx.shovels.commit()
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
