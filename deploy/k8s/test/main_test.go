package main

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// The image that the test writes for the former version starts the program as the one of the Dockerfile does. The directory for data that the latter has is
// for machines without volumes: the manifests mount one.
func TestImageIsTheDockerfiles(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	last, copies := map[string]string{}, []string{}
	for _, line := range lines {
		if word, rest, ok := strings.Cut(line, " "); ok {
			last[word] = rest
			if word == "COPY" {
				copies = append(copies, rest)
			}
		}
	}
	i := image(imageBefore, "/warren")
	entrypoint, _ := json.Marshal(i.Entrypoint)
	cmd, _ := json.Marshal(i.Cmd)
	for word, want := range map[string]string{"USER": i.User, "ENTRYPOINT": string(entrypoint), "CMD": string(cmd), "FROM": "scratch"} {
		if last[word] != want {
			t.Errorf("%s is %q in the Dockerfile, %q here", word, last[word], want)
		}
	}
	if program := "--from=build /warren /warren"; !slices.Contains(copies, program) {
		t.Errorf("the Dockerfile copies %q, and not %q", copies, program)
	}
}
