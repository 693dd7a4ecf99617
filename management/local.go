package management

import (
	"fmt"
	"net/http"
	"strconv"
)

// Local is what concerns the node alone that is asked.
type Local interface {
	// Settings are what it was started with. There is no secret among them.
	Settings() []Setting
	// LogLevel is the least severe level that it logs: debug, info, warn or error. SetLogLevel changes that until the node is
	// started again; the error is for the user.
	LogLevel() string
	SetLogLevel(level string) error
	// LogTail returns the newest lines of its log, oldest first, as many as asked for if so many are kept, and the number of the last:
	// lines are counted from the start of the node. LogAfter returns those behind the line of a number, the oldest first, and how
	// many in between are not kept any more; of a number that there was not yet, all.
	LogTail(lines int) (list []string, last uint64)
	LogAfter(number uint64, lines int) (list []string, last, missed uint64)
	// Memory is what its memory is used for. It looks at each queue.
	Memory() Memory
}

// Setting is one setting of a node.
type Setting struct {
	Name     string `json:"name"` // as a flag and in the file
	Value    string `json:"value"`
	Variable string `json:"variable"` // of the environment
}

// logLevel is the JSON form of a node's level.
type logLevel struct {
	Level string `json:"level"`
}

// logLines is the JSON form of the end of a log.
type logLines struct {
	Lines []string `json:"lines"`
	// Last is the number of the last of them: the parameter after of the next request. Missed lines before the first are not kept any more.
	Last   uint64 `json:"last"`
	Missed uint64 `json:"missed,omitempty"`
}

// Of the end of a log: how many lines are given to who does not say, and at most.
const (
	logLinesDefault = 50
	logLinesMax     = 1000
)

func (a *API) logTail(r *http.Request) (any, error) {
	n := logLinesDefault
	if text := r.URL.Query().Get("lines"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > logLinesMax {
			return nil, badRequest(fmt.Sprintf("lines must be between 1 and %d, got %q", logLinesMax, text))
		}
	}
	text := r.URL.Query().Get("after")
	if text == "" {
		lines, last := a.cfg.Local.LogTail(n)
		return logLines{Lines: lines, Last: last}, nil
	}
	after, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil, badRequest(fmt.Sprintf("after must be the number of a line, got %q", text))
	}
	lines, last, missed := a.cfg.Local.LogAfter(after, n)
	return logLines{lines, last, missed}, nil
}

func (a *API) routeLocal() {
	a.handle("GET /api/warren/log", a.admin(a.logTail))

	a.handle("GET /api/warren/environment", a.admin(func(*http.Request) (any, error) { return a.cfg.Local.Settings(), nil }))
	a.handle("GET /api/warren/log-level", a.admin(func(*http.Request) (any, error) { return logLevel{a.cfg.Local.LogLevel()}, nil }))
	a.handle("PUT /api/warren/log-level", a.admin(func(r *http.Request) (any, error) {
		body, err := readObject(r)
		if err != nil {
			return nil, err
		}
		level, err := textOf(body, "level")
		if err != nil {
			return nil, err
		}
		if err := a.cfg.Local.SetLogLevel(level); err != nil {
			return nil, badRequest("level " + err.Error())
		}
		return nil, nil
	}))
}
