package mcpconfig

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/drover-dev/drover/internal/mcp/mcpclient"
	"github.com/drover-dev/drover/internal/platform/home"
)

// Bounds of the pins; beyond them the oldest servers are forgotten.
const (
	maxPinned   = 500     // servers
	maxPinsFile = 8 << 20 // bytes
)

// Pins remembers digests of the tools of servers, so that a later change of a
// tool is noticed. They are in a file of the user that several sessions
// share. Its methods may be called by several goroutines.
type Pins struct {
	path string
	mu   sync.Mutex // of this process; others are held off by a lock of the kernel
}

// PinsAt names the file. It does no I/O.
func PinsAt(path string) *Pins { return &Pins{path: path} }

// PinsFile is where pins are kept below the folder of the state.
func PinsFile(dir string) string { return filepath.Join(dir, "mcp-tools.json") }

type pinned struct {
	Version int                   `json:"v"`
	Next    int                   `json:"next"` // number of the next server
	Servers map[string]*pinServer `json:"servers"`
}

type pinServer struct {
	Number int                `json:"n"`
	Name   string             `json:"name"` // its first one
	Tools  map[string]pinTool `json:"tools"`
}

// pinTool holds digests of the description of a tool that models get.
type pinTool struct {
	Description string `json:"description"`
	Schema      string `json:"schema"`
}

func pinOf(t mcpclient.Tool) pinTool {
	return pinTool{mcpclient.Tool{Description: t.Description}.Digest(),
		mcpclient.Tool{InputSchema: t.InputSchema}.Digest()}
}

// Note remembers new tools of a server, and returns the changes of known ones by
// their names. A non-empty distrust is returned as the change of every new tool, which is
// then not remembered.
func (p *Pins) Note(key, name string, tools []mcpclient.Tool, distrust string) (map[string]string, error) {
	changed := map[string]string{}
	err := p.change(func(all *pinned) bool {
		s := all.server(key, name)
		news := false
		for _, t := range tools {
			was, seen := s.Tools[t.Name]
			is := pinOf(t)
			switch {
			case !seen && distrust != "":
				changed[t.Name] = distrust
			case !seen:
				s.Tools[t.Name] = is
				news = true
			case was != is:
				changed[t.Name] = "since it was used first, " + difference(was, is)
			}
		}
		return news
	})
	return changed, err
}

func difference(was, is pinTool) string {
	switch {
	case was.Description == is.Description:
		return "its input has changed"
	case was.Schema == is.Schema:
		return "its description has changed"
	}
	return "its description and its input have changed"
}

// Accept remembers the present form of a tool.
func (p *Pins) Accept(key, name string, t mcpclient.Tool) error {
	return p.change(func(all *pinned) bool {
		all.server(key, name).Tools[t.Name] = pinOf(t)
		return true
	})
}

// Forget makes the tools of servers with the keys new again, and reports whether any
// were known.
func (p *Pins) Forget(keys []string) (bool, error) {
	known := false
	err := p.change(func(all *pinned) bool {
		for _, key := range keys {
			known = known || all.Servers[key] != nil
			delete(all.Servers, key)
		}
		return known
	})
	return known, err
}

func (all *pinned) server(key, name string) *pinServer {
	s := all.Servers[key]
	if s == nil {
		all.Next++
		s = &pinServer{Number: all.Next, Name: name}
		all.Servers[key] = s
	}
	if s.Tools == nil {
		s.Tools = map[string]pinTool{}
	}
	return s
}

// change lets f change the pins, and writes them if f returns true.
func (p *Pins) change(f func(*pinned) bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	unlock, err := lock(filepath.Dir(p.path))
	if err != nil {
		return fmt.Errorf("remember tools of MCP servers: %w", err)
	}
	defer unlock()
	all := pinned{Version: 1}
	data, err := read(File{Path: p.path}, maxPinsFile)
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remember tools of MCP servers: %s: %w (remove it to begin anew)", p.path, err)
	}
	if all.Servers == nil {
		all.Servers = map[string]*pinServer{}
	}
	if !f(&all) {
		return nil
	}
	all.trim(maxPinned)
	for data, err = json.Marshal(all); err == nil && len(data) > maxPinsFile; data, err = json.Marshal(all) {
		all.trim(len(all.Servers) / 2)
	}
	if err == nil {
		err = home.WriteAtomic(p.path, data)
	}
	if err != nil {
		return fmt.Errorf("remember tools of MCP servers: %w", err)
	}
	return nil
}

func (all *pinned) trim(most int) {
	over := len(all.Servers) - most
	if over <= 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(all.Servers),
		func(a, b string) int { return cmp.Compare(all.Servers[a].Number, all.Servers[b].Number) })
	for _, key := range keys[:over] {
		delete(all.Servers, key)
	}
}
