package main

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/warrenmq/warren/config"
)

// TestLastWordsWaitForNobody: a process whose disk has failed ends although nobody takes its log.
func TestLastWordsWaitForNobody(t *testing.T) {
	r, w := io.Pipe() // which takes nothing until it is read
	log, _ := newLogger(w, config.Config{})
	ended := make(chan int, 2)
	over := make(chan struct{})
	go func() {
		defer close(over)
		lastWords(log, "log store failed", errors.New("input/output error"), func(code int) { ended <- code })
	}()
	select {
	case code := <-ended:
		if code != exitFailed {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(10 * lastWordsTime):
		t.Error("it waits for its log to be read")
	}
	r.Close()
	<-over
}
