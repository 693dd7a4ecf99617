package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// OpsMax bounds a history: Load refuses a longer one, since checkers hold it in
// memory, some 300 bytes an operation. A Recorder is Full well before.
const OpsMax = 1_500_000

// Recorder appends operations to a file. Its methods may be called by any goroutine.
type Recorder struct {
	begun time.Time

	mu   sync.Mutex
	next int
	w    *bufio.Writer
	file *os.File
	err  error // the first
}

// Create makes the file at path and starts the run's clock.
func Create(path string) (*Recorder, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create the history: %w", err)
	}
	return &Recorder{begun: time.Now(), next: 1, w: bufio.NewWriterSize(f, 64<<10), file: f}, nil
}

// Now returns the time of the run.
func (r *Recorder) Now() time.Duration { return time.Since(r.begun) }

// Record gives op its index and time, writes it and returns the index. An error of
// the file is reported by Close.
func (r *Recorder) Record(op Op) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Index, op.Time = r.next, time.Since(r.begun)
	r.next++
	line, err := json.Marshal(op)
	if err == nil && r.file != nil {
		_, err = r.w.Write(append(line, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
	return op.Index
}

// Full tells that the load must end: what is left of OpsMax is for the end of the run.
func (r *Recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next > OpsMax/2
}

// Close writes out what is buffered and returns the first error there was. Later
// operations are dropped.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return r.err
	}
	err := errors.Join(r.err, r.w.Flush(), r.file.Close())
	r.file = nil
	return err
}

// Load reads a history.
func Load(path string) ([]Op, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load the history: %w", err)
	}
	defer f.Close()
	return Read(f)
}

// Read is Load for what is not a file.
func Read(from io.Reader) ([]Op, error) {
	var ops []Op
	d := json.NewDecoder(bufio.NewReader(from))
	for {
		var op Op
		err := d.Decode(&op)
		if errors.Is(err, io.EOF) {
			return ops, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the history: %w", len(ops)+1, err)
		}
		if len(ops) == OpsMax {
			return nil, fmt.Errorf("the history has more than %d operations", OpsMax)
		}
		ops = append(ops, op)
	}
}
