package main

import (
	"log/slog"
	"time"
)

// lastWordsTime is how long a process that must end waits for its reason to be written.
const lastWordsTime = time.Second

// lastWords ends the process because its disk has failed, and says why. Whoever takes the log may hang on that same disk, and it is written to a pipe that is full then: a
// leader that waited for it would lead on, without confirming anything, and nobody would take its place.
func lastWords(log *slog.Logger, what string, err error, exit func(code int)) {
	time.AfterFunc(lastWordsTime, func() { exit(exitFailed) })
	log.Error(what, "err", err)
	exit(exitFailed)
}
