package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/warrenmq/warren/rabbitconf"
)

// translateCommand is `warren translate`.
func translateCommand(env environment) *cobra.Command {
	return &cobra.Command{
		Use:   "translate FILE|DIR...",
		Short: "Translate a rabbitmq.conf into a configuration file",
		Long: "Translate RabbitMQ's configuration (rabbitmq.conf, conf.d) into a file for `warren serve --config`, on standard output. What has no counterpart is\n" +
			"in comments at its end, with what to do about it. Of a folder, the *.conf in it are read in the order of their names; of a key that is set twice\n" +
			"the last one counts, as in RabbitMQ. Files that RabbitMQ would not read are refused. Passwords are not printed.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var entries []rabbitconf.Entry
			for _, arg := range args {
				files, err := confFiles(arg)
				if err != nil {
					return err
				}
				for _, file := range files {
					some, err := readConf(file)
					if err != nil {
						return err
					}
					entries = append(entries, some...)
				}
			}
			if err := rabbitconf.Translate(entries).Print(env.stdout); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}

// confFiles is the file, or what RabbitMQ reads of a folder.
func confFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".conf" && !e.IsDir() {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	slices.Sort(files)
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: there is no *.conf in it", path)
	}
	return files, nil
}

func readConf(path string) ([]rabbitconf.Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, rabbitconf.FileBytesMax+1))
	if err != nil {
		return nil, err
	}
	return rabbitconf.Read(path, content)
}
