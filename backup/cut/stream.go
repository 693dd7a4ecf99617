package cut

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/warrenmq/warren/backup"
)

// readWait bounds one read from a node.
const readWait = 30 * time.Second

// WriteTo writes the archive. It can be done once.
func (k *Cut) WriteTo(ctx context.Context, to io.Writer) error {
	w, err := backup.NewWriter(to, k.Header)
	if err != nil {
		return err
	}
	if err := w.Catalog(bytes.NewReader(k.catalog)); err != nil {
		return err
	}
	for i := range k.Header.Queues {
		if err := w.Queue(&reading{ctx: ctx, k: k, q: &k.Header.Queues[i]}); err != nil {
			return err
		}
	}
	return w.Close()
}

// Close has the nodes forget the cut. It is safe twice.
func (k *Cut) Close() {
	k.touch()
	k.touched.Wait()
	dropAll(k.c, k.id, k.nodes)
	k.nodes = nil
}

// touchAll keeps the nodes from forgetting the cut while others are read from.
func (k *Cut) touchAll(ctx context.Context) {
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range slices.Clone(k.nodes) {
			ctx, cancel := context.WithTimeout(ctx, dropWait)
			_, _ = callRaw(ctx, k.c, n, request{Version: messageVersion, ID: k.id, Do: doTouch}) // the next read tells
			cancel()
		}
	}
}

// reading reads the state of one queue from the node that keeps it.
type reading struct {
	ctx  context.Context // of the one call of WriteTo
	k    *Cut
	q    *backup.Queue
	got  int64
	rest []byte
}

// Read implements io.Reader.
func (r *reading) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		if r.got == r.q.Bytes {
			return 0, io.EOF
		}
		ctx, cancel := context.WithTimeout(r.ctx, readWait)
		defer cancel()
		raw, err := callRaw(ctx, r.k.c, r.q.Node, request{Version: messageVersion, ID: r.k.id, Do: doRead, Queue: r.q.ID, Offset: r.got})
		if err != nil {
			return 0, err
		}
		if len(raw) == 0 || int64(len(raw)) > r.q.Bytes-r.got {
			return 0, fmt.Errorf("node %s: %d bytes of queue %d, %d are missing", r.q.Node, len(raw), r.q.ID, r.q.Bytes-r.got)
		}
		r.rest, r.got = raw, r.got+int64(len(raw))
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}
