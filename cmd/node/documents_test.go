package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestDocumentedCommandLines: the command lines that documents show are such as warren takes: the command, its options, and, where the line stands by
// itself and not in a sentence, the number of its arguments.
func TestDocumentedCommandLines(t *testing.T) {
	paths := []string{"../../README.md", "../../deploy/k8s/README.md"}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(more) == 0 {
		t.Fatalf("%v, %v", more, err)
	}
	block := regexp.MustCompile(`^ {4,}(?:kubectl exec .*-- /)?(?:bin/)?(warren [a-z].*)$`)
	inline := regexp.MustCompile("`(?:bin/|/)?(warren [a-z][^`]*)`")
	seen := 0
	for _, path := range slices.Concat(paths, more) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(raw), "\n") {
			if m := block.FindStringSubmatch(text); m != nil {
				seen++
				if problem := wrongCommandLine(m[1], true); problem != "" {
					t.Errorf("%s: %s: %s", path, m[1], problem)
				}
				continue
			}
			for _, m := range inline.FindAllStringSubmatch(text, -1) {
				seen++
				if problem := wrongCommandLine(m[1], false); problem != "" {
					t.Errorf("%s: %s: %s", path, m[1], problem)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d command lines were found", seen)
	}
}

// wrongCommandLine says what warren would refuse of a line.
func wrongCommandLine(text string, whole bool) string {
	args := shellWords(strings.ReplaceAll(text, `\|`, "|")) // in tables
	for i, a := range args {
		if omitted := strings.Contains(a, "…") || a == "..."; omitted && !strings.HasPrefix(args[i-1], "--") {
			args, whole = args[:i], false // what follows is left out
			break
		}
	}
	if len(args) < 2 {
		return ""
	}
	env, _, _ := testEnvironment(nil)
	root := rootCommand(env)
	root.SetOut(io.Discard)
	root.InitDefaultHelpCmd()
	cmd, rest, err := root.Find(args[1:])
	if err != nil {
		return err.Error()
	}
	err = cmd.ParseFlags(rest)
	if errors.Is(err, pflag.ErrHelp) {
		return ""
	}
	if left := cmd.Flags().Args(); err == nil && cmd.HasSubCommands() && len(left) > 0 && left[0] != "COMMAND" {
		return "no such command"
	}
	if err == nil && whole {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// shellWords are the words of a command up to what a shell has for itself: a comment, a pipe, a redirection.
func shellWords(text string) []string {
	var words []string
	word, in, quote := strings.Builder{}, false, rune(0)
	end := func() {
		if in {
			words = append(words, word.String())
		}
		word.Reset()
		in = false
	}
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ':
			end()
		case !in && strings.ContainsRune("#|<>&;", r):
			return words
		default:
			word.WriteRune(r)
			in = true
		}
	}
	end()
	return words
}
