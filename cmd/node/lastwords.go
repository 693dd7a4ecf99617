package main

import (
	"io"
	"log/slog"
	"time"
)

// lastWordsTime is how long a process that must end waits for its reason to be written.
const lastWordsTime = time.Second

// lastWords ends the process because its disk has failed, and says why. Whoever takes the log may hang on that same disk: a leader that waited
// for it would lead on, without confirming anything, and nobody would take its place.
func lastWords(log *slog.Logger, kept *logs, what string, err error, exit func(code int)) {
	log.Error(what, "err", err)
	if kept.flush != nil {
		kept.flush(lastWordsTime)
	}
	exit(exitFailed)
}

// lastLine writes why a process ends. It may be to a pipe that nobody reads, or a terminal that somebody has stopped: the process ends all the same.
func lastLine(w io.Writer, write func(w io.Writer)) {
	done := make(chan struct{})
	go func() { // ends with the process at the latest
		defer close(done)
		write(w)
	}()
	select {
	case <-done:
	case <-time.After(lastWordsTime):
	}
}
