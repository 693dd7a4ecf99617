package ctl

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProfiles: options come from the command line, or else the environment, or else the profile.
func TestProfiles(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		asked = user + ":" + password + " " + r.URL.EscapedPath()
		_, _ = w.Write([]byte("[]")) // the test sees what is missing
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	secret := write("pass", "from file\nsecond line\n", 0o600)
	text := "default: {url: " + server.URL + ", user: me, password: mine}\nother: {url: '" + server.URL + "', user: you, password-file: " + secret + ", vhost: v}\n"
	file := write(".config/warren/ctl.yaml", text, 0o600)
	write("xdg/warren/ctl.yaml", "default: {url: "+server.URL+", user: x}\n", 0o644)
	for _, x := range []struct {
		name string
		vars map[string]string
		args []string
		want string
	}{
		{"default", map[string]string{"HOME": dir}, nil, "me:mine /api/queues/%2F"},
		{"named", map[string]string{"HOME": dir}, []string{"--profile", "other"}, "you:from file /api/queues/v"},
		{"by the environment", map[string]string{"WARREN_CTL_CONFIG": file, "WARREN_CTL_PROFILE": "other"}, nil, "you:from file /api/queues/v"},
		{"below the environment", map[string]string{"HOME": dir, "WARREN_CTL_USER": "env"}, nil, "env:mine /api/queues/%2F"},
		{"below options", map[string]string{"HOME": dir, "WARREN_CTL_USER": "env"}, []string{"--user", "flag", "--profile", "other", "-p", "w"}, "flag:from file /api/queues/w"},
		{"another folder", map[string]string{"HOME": dir, "XDG_CONFIG_HOME": filepath.Join(dir, "xdg")}, nil, "x:guest /api/queues/%2F"},
		{"no file", map[string]string{"HOME": filepath.Join(dir, "none")}, []string{"--url", server.URL}, "guest:guest /api/queues/%2F"},
	} {
		asked = ""
		if code, out, failure := runWith(t, x.vars, append(x.args, "list_queues")...); code != 0 || asked != x.want {
			t.Errorf("%s: %d, asked %q, want %q; %s%s", x.name, code, asked, x.want, out, failure)
		}
	}
	for name, x := range map[string]struct {
		text string
		mode os.FileMode
		args []string
		want string
	}{
		"no such profile":     {text, 0o600, []string{"--profile", "third"}, "no profile 'third' in "},
		"unknown key":         {"default: {uri: x}\n", 0o600, nil, "field uri not found"},
		"no YAML":             {"default: {\n", 0o600, nil, "profiles: "},
		"a password for all":  {text, 0o644, nil, "chmod 600"},
		"no password file":    {"default: {password-file: " + dir + "/none}\n", 0o600, nil, "no such file"},
		"empty, one is named": {"", 0o600, []string{"--profile", "default"}, "no profile 'default'"},
	} {
		bad := write("bad.yaml", x.text, 0o600)
		if err := os.Chmod(bad, x.mode); err != nil {
			t.Fatal(err)
		}
		code, _, failure := runWith(t, map[string]string{"WARREN_CTL_CONFIG": bad}, append(x.args, "--url", server.URL, "list_queues")...)
		if code != ExitUsage || !strings.Contains(failure, x.want) {
			t.Errorf("%s: %d %s", name, code, failure)
		}
	}
}
