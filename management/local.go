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
	// LogTail returns the newest lines of its log, oldest first, as many as asked for if so many are kept.
	LogTail(lines int) []string
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
	return logLines{a.cfg.Local.LogTail(n)}, nil
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
