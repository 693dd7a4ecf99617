package management

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
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

// backup streams a backup. The parameter hold is in seconds. A backup that fails before the answer has begun is refused with its
// reason; an answer that has begun and cannot be finished is broken off, which a client sees, and the archive lacks its end.
func (a *API) backup(w http.ResponseWriter, r *http.Request) error {
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
	out := &sending{to: w}
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

// sending knows whether an answer has begun.
type sending struct {
	to    io.Writer
	begun bool
}

func (s *sending) Write(b []byte) (int, error) {
	s.begun = true
	return s.to.Write(b)
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
