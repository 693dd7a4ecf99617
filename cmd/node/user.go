package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/warrenmq/warren/auth"
)

// passwordBytesMax bounds the password of the default user.
const passwordBytesMax = 64 << 10

// checkDefaultUser reads the default user's password while the node may found a cluster, so that a file that is missing or wrong is
// told at once and not when the others are there. Later nobody needs the file.
func (n *running) checkDefaultUser(context.Context) error {
	if n.identity.ClusterID() != "" || n.cfg.BootstrapExpect == 0 {
		return nil
	}
	u, err := n.defaultUser()
	if err != nil {
		return err
	}
	return u.Validate()
}

// defaultUser is the user that a cluster begins with if this node is the one to say so.
func (n *running) defaultUser() (auth.User, error) {
	password := auth.GuestName
	if n.cfg.DefaultPassFile != "" {
		var err error
		if password, err = readPassword(n.cfg.DefaultPassFile); err != nil {
			return auth.User{}, err
		}
	}
	return auth.User{Name: n.cfg.DefaultUser, PasswordHash: auth.HashPassword(password), Tags: n.cfg.DefaultUserTags}, nil
}

// readPassword returns the one line of a file. Errors do not quote it.
func readPassword(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("default-pass-file: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, passwordBytesMax+1))
	if err != nil {
		return "", fmt.Errorf("default-pass-file: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > passwordBytesMax:
		err = fmt.Errorf("more than %d bytes", passwordBytesMax)
	case strings.ContainsAny(password, "\r\n\x00"):
		err = errors.New("a password is one line of text")
	case password == "":
		err = errors.New("a password cannot be empty")
	}
	if err != nil {
		return "", fmt.Errorf("default-pass-file: %s: %w", file, err)
	}
	return password, nil
}
