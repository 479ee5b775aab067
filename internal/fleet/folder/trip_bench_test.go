package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prose is text that packs about as source code does.
func prose(n, seed int) string {
	words := strings.Fields("func return error context string the a of if err nil != range for := package import type struct map int byte " +
		"repository commit manifest digest part parts store cache folder file files limit bytes name path snapshot index branch")
	var b strings.Builder
	x := uint64(88172645463325252 + seed*7919)
	for b.Len() < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteString(words[x%uint64(len(words))])
		if x%11 == 0 {
			fmt.Fprintf(&b, "%x\n", x%65536)
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// wide makes a repository of 5,000 files with 50 MB and some history.
func wide(b *testing.B) string {
	b.Helper()
	home := filepath.Join(b.TempDir(), "home")
	must(b, os.Mkdir(home, 0o755))
	sh(b, home, "init", "-q")
	for i := range 5000 {
		write(b, home, fmt.Sprintf("pkg%d/dir%d/file%d.go", i%20, i%100, i), prose(10_000, i))
	}
	sh(b, home, "add", ".")
	sh(b, home, "commit", "-qm", "first")
	for c := range 20 {
		for i := range 50 {
			n := c*50 + i
			write(b, home, fmt.Sprintf("pkg%d/dir%d/file%d.go", n%20, n%100, n), prose(10_000, n)+fmt.Sprint(c))
		}
		sh(b, home, "commit", "-qam", "more")
	}
	sh(b, home, "gc", "-q")
	return home
}

// BenchmarkTrip measures trips of each kind in its log; run it with -benchtime=1x.
func BenchmarkTrip(b *testing.B) {
	home := wide(b)
	for b.Loop() {
		c, s := newCache(b), newMemory()
		sent, at := int64(0), time.Now()
		lap := func(what string) {
			b.Logf("%-28s %8d bytes %6d ms", what, s.sent-sent, time.Since(at).Milliseconds())
			sent, at = s.sent, time.Now()
		}
		trip := func(name string) (Manifest, string) {
			at = time.Now()
			id, err := Identify(b.Context(), home)
			must(b, err)
			have, err := c.Have(b.Context(), id)
			must(b, err)
			m, err := Pack(b.Context(), home, Choice{Have: have, AllUntracked: true}, s)
			must(b, err)
			lap(name + ": pack")
			dir := filepath.Join(b.TempDir(), "work")
			_, err = c.Unpack(b.Context(), m, Limits{}, s, dir)
			must(b, err)
			lap(name + ": unpack")
			return m, dir
		}
		trip("first")
		for i := range 20 {
			write(b, home, fmt.Sprintf("pkg%d/dir%d/file%d.go", i%20, i%100, i), prose(10_000, i)+"changed\n")
		}
		write(b, home, "untracked", prose(10_000, 1))
		m, dir := trip("20 files changed")
		trip("the same again")
		for i := range 10 {
			write(b, dir, fmt.Sprintf("pkg%d/dir%d/file%d.go", i%20, i%100, i), prose(10_000, i)+"by the task\n")
		}
		at = time.Now()
		r, err := c.Collect(b.Context(), dir, m, Ending{}, Limits{}, s)
		must(b, err)
		lap("10 files back: collect")
		_, err = Receive(b.Context(), home, m, r, "refs/drover/tasks/b1", Limits{}, s)
		must(b, err)
		lap("10 files back: receive")
		sh(b, home, "checkout", "-q", "-f", "HEAD")

		away := filepath.Join(b.TempDir(), "git")
		must(b, os.Rename(filepath.Join(home, ".git"), away))
		plain := func(name string) {
			at = time.Now()
			p, err := Pack(b.Context(), home, Choice{Plain: true}, s)
			must(b, err)
			lap(name + ": pack")
			_, err = c.Unpack(b.Context(), p, Limits{}, s, filepath.Join(b.TempDir(), "plain"))
			must(b, err)
			lap(name + ": unpack")
		}
		plain("plain, first")
		for i := range 20 {
			write(b, home, fmt.Sprintf("pkg%d/dir%d/file%d.go", i%20, i%100, i), prose(10_000, i)+"changed again\n")
		}
		plain("plain, 20 files changed")
		must(b, os.Rename(away, filepath.Join(home, ".git")))
		sh(b, home, "checkout", "-q", "-f", "HEAD")
	}
}
