package member

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const keyFileBytesMax = 64 << 10

// KeyFile is a file of keys that is looked at again and again, as ParseKeys reads it. Its methods may be
// called from any goroutine.
type KeyFile struct {
	path string
	log  *slog.Logger

	failures atomic.Uint64

	mu      sync.Mutex // one look at a time; guards what follows
	content []byte
	keys    [][]byte
	refused string // what was last counted as a failure
	use     func([][]byte) error

	cancel context.CancelFunc
	work   sync.WaitGroup
}

// OpenKeyFile reads the keys and looks at the file every so often until Close.
func OpenKeyFile(path string, every time.Duration, log *slog.Logger) (*KeyFile, error) {
	f := &KeyFile{path: path, log: log}
	var err error
	if f.content, f.keys, err = f.read(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.work.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				f.Reload()
			}
		}
	})
	return f, nil
}

// Close stops looking. It is safe twice.
func (f *KeyFile) Close() error {
	f.cancel()
	f.work.Wait()
	return nil
}

// Keys returns the keys in use; nobody changes them.
func (f *KeyFile) Keys() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys
}

// Failures counts contents that were not taken, each once until something changes.
func (f *KeyFile) Failures() uint64 { return f.failures.Load() }

// OnChange sets what takes new keys, and gives it those of now.
func (f *KeyFile) OnChange(use func([][]byte) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use = use
	return use(f.keys)
}

// Reload looks at the file now. Content that is no list of keys changes nothing but the count of failures.
func (f *KeyFile) Reload() {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, keys, err := f.read()
	if err == nil && bytes.Equal(content, f.content) {
		f.refused = ""
		return
	}
	if err == nil && f.use != nil {
		err = f.use(keys)
	}
	if err != nil {
		if f.refused != err.Error() {
			f.refused = err.Error()
			f.failures.Add(1)
			f.log.Error("new gossip keys are not used, the old ones stay", "err", err)
		}
		return
	}
	f.refused, f.content, f.keys = "", content, keys
	prints := make([]string, len(keys))
	for i, k := range keys {
		prints[i] = Fingerprint(k)
	}
	f.log.Info("gossip keys are replaced", "fingerprints", prints)
}

func (f *KeyFile) read() (content []byte, keys [][]byte, err error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	if content, err = io.ReadAll(io.LimitReader(file, keyFileBytesMax+1)); err != nil {
		return nil, nil, err
	}
	if len(content) > keyFileBytesMax {
		return nil, nil, fmt.Errorf("%s is larger than %d bytes", f.path, keyFileBytesMax)
	}
	if keys, err = ParseKeys(content); err != nil {
		return nil, nil, fmt.Errorf("gossip keys %s: %w", f.path, err)
	}
	return content, keys, nil
}
