package drover_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostPackages and mostBytes bound a program that opens a runtime and runs one command, which itself is one more.
const (
	mostPackages = 249
	mostBytes    = 14 << 20 // stripped
)

// apart are packages that no such program links, by the beginning of their paths.
var apart = []string{
	"github.com/drover-dev/drover/agent", // and agents
	"github.com/drover-dev/drover/subagent",
	"github.com/drover-dev/drover/internal/fleet", "github.com/drover-dev/drover/internal/frontend",
	"github.com/drover-dev/drover/internal/git", "github.com/drover-dev/drover/internal/mcp",
	"github.com/drover-dev/drover/internal/model", "github.com/drover-dev/drover/internal/policy",
	"github.com/drover-dev/drover/internal/project/catalog", "github.com/drover-dev/drover/internal/tool",
	"github.com/nats-io", "github.com/spf13/cobra", "github.com/charmbracelet", "charm.land",
	"github.com/modelcontextprotocol", "github.com/coder/acp-go-sdk", "mvdan.cc/sh", "image/", "debug/",
}

// A program that runs commands links what commands need, and nothing of agents.
func TestPackages(t *testing.T) {
	list := exec.Command("go", "list", "-deps", ".")
	list.Env = append(list.Environ(), "CGO_ENABLED=0") // as of a static program
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if len(all) > mostPackages {
		t.Errorf("package drover needs %d packages, and %d may be: go list -deps . names them", len(all), mostPackages)
	}
	for _, path := range all {
		if slices.ContainsFunc(apart, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("package drover needs %s", path)
		}
	}
}

// The program of the first example is small.
func TestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it builds a program")
	}
	const program = `package main

import (
	"context"
	"fmt"

	"github.com/drover-dev/drover"
)

func main() {
	ctx := context.Background()
	rt, err := drover.Open(ctx, drover.Config{Isolated: true})
	if err != nil {
		panic(err)
	}
	defer rt.Close()
	t, err := rt.Shell(ctx, drover.Shell{Line: "exit 3"})
	if err != nil {
		panic(err)
	}
	if t, err = rt.Wait(ctx, t.ID); err != nil {
		panic(err)
	}
	fmt.Println(t.Status, *t.ExitCode)
}
`
	dir := t.TempDir()
	source, built := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", built, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(built)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > mostBytes {
		t.Errorf("the program has %d bytes, and %d may be", info.Size(), int64(mostBytes))
	}
	if out, err := exec.Command(built).CombinedOutput(); err != nil || string(out) != "failed 3\n" {
		t.Errorf("it prints %q, %v", out, err)
	}
}
