package ctl

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// profile is one cluster of the file of profiles: options that are not given, nor in the environment.
type profile struct {
	URL          string `yaml:"url"`
	User         string `yaml:"user"`
	Password     string `yaml:"password"`
	PasswordFile string `yaml:"password-file"`
	VHost        string `yaml:"vhost"`
	CAFile       string `yaml:"ca-file"`
	CertFile     string `yaml:"cert-file"`
	KeyFile      string `yaml:"key-file"`
}

// profileDefault is the profile that is used when none is named, if the file has it.
const profileDefault = "default"

// profileBytesMax bounds the file of profiles, and one with a password.
const profileBytesMax = 1 << 20

// fromProfile fills in options that were not given. named tells whether somebody has said who asks.
func (t *tool) fromProfile(named *bool) error {
	name, asked := t.opt.profile, t.given("profile")
	if v, ok := t.env.Lookup("WARREN_CTL_PROFILE"); ok && v != "" && !asked {
		name, asked = v, true
	}
	file := t.profileFile()
	if file == "" {
		if asked {
			return usage("profile '%s': neither WARREN_CTL_CONFIG nor HOME says where profiles are", name)
		}
		return nil
	}
	all, open, err := readProfiles(file)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return usage("profiles: %v", err)
	}
	p, ok := all[name]
	if !ok {
		if asked {
			return usage("no profile '%s' in %s", name, file)
		}
		return nil
	}
	if open && p.Password != "" {
		return usage("%s has passwords, and others may read it: chmod 600 it, or use password-file", file)
	}
	if p.PasswordFile != "" {
		if p.Password, err = passwordOf(p.PasswordFile); err != nil {
			return usage("profile '%s': %v", name, err)
		}
	}
	for option, v := range map[string]struct {
		from string
		to   *string
	}{
		"url": {p.URL, &t.opt.url}, "user": {p.User, &t.opt.user}, "password": {p.Password, &t.opt.password}, "vhost": {p.VHost, &t.opt.vhost},
		"ca-file": {p.CAFile, &t.opt.ca}, "cert-file": {p.CertFile, &t.opt.cert}, "key-file": {p.KeyFile, &t.opt.key},
	} {
		if v.from != "" && !t.given(option) {
			*v.to = v.from
		}
	}
	*named = *named || p.User != ""
	return nil
}

// profileFile is where profiles are, "" if nothing says it.
func (t *tool) profileFile() string {
	if v, ok := t.env.Lookup("WARREN_CTL_CONFIG"); ok && v != "" {
		return v
	}
	if v, ok := t.env.Lookup("XDG_CONFIG_HOME"); ok && v != "" {
		return filepath.Join(v, "warren", "ctl.yaml")
	}
	if v, ok := t.env.Lookup("HOME"); ok && v != "" {
		return filepath.Join(v, ".config", "warren", "ctl.yaml")
	}
	return ""
}

// readProfiles reads a file. open tells that others than its owner may read it.
func readProfiles(file string) (all map[string]profile, open bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	raw, err := io.ReadAll(io.LimitReader(f, profileBytesMax))
	if err != nil {
		return nil, false, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, errors.New(file + ": " + err.Error())
	}
	return all, info.Mode().Perm()&0o077 != 0, nil
}

// passwordOf is the first line of a file.
func passwordOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, profileBytesMax))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}
