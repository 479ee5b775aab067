package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/drover-dev/drover/internal/frontend/tui"
	"github.com/drover-dev/drover/internal/model/provider"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/project/settings"
	"github.com/drover-dev/drover/subagent"
)

// setUp is what the set-up page of the terminal UI does.
func (b screens) setUp() *tui.SetUp {
	file := b.root.CredentialsFile()
	if rest, ok := strings.CutPrefix(file, home.Lookup(b.env)("HOME")+"/"); ok {
		file = "~/" + rest
	}
	s := &tui.SetUp{File: file, Save: b.saveAccess,
		Local: func(ctx context.Context) []tui.Local {
			var out []tui.Local
			for _, l := range provider.FindLocal(ctx) {
				out = append(out, tui.Local(l))
			}
			return out
		},
		Models: func(ctx context.Context, a tui.Access) ([]string, error) {
			return provider.List(ctx, provider.Access{Provider: a.Provider, BaseURL: a.BaseURL,
				APIKey: a.APIKey, AuthToken: a.AuthToken})
		},
	}
	for _, v := range subagent.Vendors() {
		_, bridge := exec.LookPath(v.ACP.Command)
		_, program := exec.LookPath(v.Name)
		if bridge == nil || program == nil {
			s.Agents = append(s.Agents, tui.Vendor{Name: v.Name, Title: v.DisplayName})
		}
	}
	return s
}

// saveAccess keeps how models are reached.
func (b screens) saveAccess(a tui.Access) error {
	data, err := json.MarshalIndent(settings.Saved(a), "", "\t")
	if err == nil {
		err = b.root.Ensure()
	}
	if err == nil {
		err = b.root.WriteAtomic(b.root.CredentialsFile(), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save how the model is reached: %w", err)
	}
	set, err := b.Settings("")
	if err != nil {
		return err
	}
	if set.Saved.Variables(home.Lookup(b.env), set.Providers) == nil {
		return fmt.Errorf("saved, but variables or settings say otherwise of %s (remove what they say, or correct it there)",
			a.Provider)
	}
	if want := cmp.Or(a.Model, provider.Default); cmp.Or(set.Model, provider.Default) != want {
		return fmt.Errorf("saved, but your settings name the model %.60q (remove `model` there, or set it to %.60q)",
			set.Model, want)
	}
	return nil
}
