package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The image that the test writes is the one of the Dockerfile.
func TestImageIsTheDockerfiles(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	last := map[string]string{}
	for _, line := range lines {
		if word, rest, ok := strings.Cut(line, " "); ok {
			last[word] = rest
		}
	}
	i := image(imageBefore, "/warren")
	entrypoint, _ := json.Marshal(i.Entrypoint)
	cmd, _ := json.Marshal(i.Cmd)
	for word, want := range map[string]string{"USER": i.User, "ENTRYPOINT": string(entrypoint), "CMD": string(cmd), "COPY": "--from=build /warren /warren", "FROM": "scratch"} {
		if last[word] != want {
			t.Errorf("%s is %q in the Dockerfile, %q here", word, last[word], want)
		}
	}
}
