package management

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/warrenmq/warren/auth"
)

// Backup is a consistent cut of the cluster, ready to be written.
type Backup interface {
	// WriteTo writes the archive, once.
	WriteTo(ctx context.Context, to io.Writer) error
	// Close has the cluster forget the cut.
	Close()
}

// backups is what the API needs to take backups.
type backups interface {
	// Backup takes a consistent cut; dead letters stand still for up to hold, 0: the default.
	Backup(ctx context.Context, hold time.Duration) (Backup, error)
}

// holdMax bounds how long dead letters may stand still.
const holdMax = time.Minute

func (a *API) routeBackups() {
	a.serve("GET /api/warren/backup", func(w http.ResponseWriter, r *http.Request) {
		if err := a.backup(w, r); err != nil {
			a.refuse(w, err)
		}
	})
}

// backupBuffer is how much of a backup is held back, in bytes, before an answer begins: one that fails until then is told why.
const backupBuffer = 64 << 10

// backupStalled is how long a client may take nothing of a backup. Until it is read no node takes part in another one, and the nodes' logs keep what it is made of.
const backupStalled = 2 * time.Minute

// backup streams a backup. The parameter hold is in seconds. A backup that fails before the answer has begun is refused with its
// reason; an answer that has begun and cannot be finished is broken off, which a client sees, and the archive lacks its end.
func (a *API) backup(w http.ResponseWriter, r *http.Request) error {
	if err := sameOriginLook(r); err != nil { // dead letters stand still for it
		return err
	}
	u, err := a.authenticate(r)
	if err != nil {
		return err
	}
	b, err := a.beginBackup(r, u)
	if err != nil {
		a.record(r, u, err)
		return err
	}
	defer b.Close()
	w.Header().Set("Content-Type", "application/gzip")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Disposition", `attachment; filename="warren-backup.tar.gz"`)
	out := &sending{to: w, stalled: backupStalled}
	buffer := bufio.NewWriterSize(out, backupBuffer)
	if err = b.WriteTo(r.Context(), buffer); err == nil {
		err = buffer.Flush()
	}
	a.record(r, u, err)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			a.cfg.Logger.Error("a backup is broken off", "err", err)
		}
		if !out.begun {
			w.Header().Del("Content-Disposition")
			return err
		}
		b.Close()
		panic(http.ErrAbortHandler)
	}
	return nil
}

// sending knows whether an answer has begun, and fails when the client takes nothing for so long.
type sending struct {
	to      http.ResponseWriter
	stalled time.Duration
	begun   bool
}

func (s *sending) Write(b []byte) (n int, err error) {
	s.begun = true
	c := http.NewResponseController(s.to)
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // HTTP/2 ends an answer for which the node has nothing to write yet, too
	for part := range slices.Chunk(b, backupBuffer) {
		_ = c.SetWriteDeadline(time.Now().Add(s.stalled)) // a connection that is closed, or none, as in tests
		m, err := s.to.Write(part)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// beginBackup takes the cut.
func (a *API) beginBackup(r *http.Request, u User) (Backup, error) {
	if !u.may(auth.TagAdministrator) {
		return nil, errNotAuthorised
	}
	hold, err := seconds(r, "hold", 0)
	if err != nil {
		return nil, err
	}
	if hold > holdMax {
		return nil, badRequest("hold is more than a minute")
	}
	return a.cfg.Backups.Backup(r.Context(), hold)
}
