package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/drover-dev/drover/internal/api/host"
	"github.com/drover-dev/drover/internal/platform/excerpt"
	"github.com/drover-dev/drover/internal/platform/home"
	"github.com/drover-dev/drover/internal/session"
	"github.com/drover-dev/drover/internal/session/dreams"
)

// parentTranscript names the transcript of the conversation to the agent that consolidates it.
const parentTranscript = "DROVER_PARENT_TRANSCRIPT"

// part starts an agent that brings the lessons of an ended conversation to the board, if the settings
// want that. An error is a note: the conversation has ended well without it.
func (b prompts) part(m *session.Main, settings string) {
	p, ok := m.Handover(home.Lookup(b.env))
	if !ok {
		return
	}
	if err := b.leave(p, settings); err != nil {
		b.note(fmt.Sprintf("the lessons of this conversation are not consolidated: %v", err))
	}
}

// leave starts the process of the agent, which outlives this one. It gets the conversation on stdin:
// a list of processes does not show that.
func (b prompts) leave(p dreams.Handover, settings string) error {
	dir, err := b.root.Below().Folder(b.root.Project(b.cwd).Dir())
	if err != nil {
		return err
	}
	defer dir.Close()
	in, err := dir.Temporary(".parting-")
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.WriteString(in, p.Prompt)
	if err == nil {
		_, err = in.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, dir.Remove(filepath.Base(in.Name()))); err != nil {
		return fmt.Errorf("write the conversation down: %w", err)
	}
	log, err := dir.Open("rem.log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"agent", "run", "rem-agent", "--name", "rem-consolidate", "--permission-mode", "dontAsk", "--model",
		p.Model}
	if settings != "" {
		args = append(args, "--settings", settings)
	}
	cmd := exec.Command(b.exe, append(args, "-")...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.cwd, in, log, log
	cmd.Env = append(host.HostEnv(b.env), dreams.ParentVariable+"="+string(p.Session), parentTranscript+"="+p.Transcript)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return cmd.Process.Release() // it outlives this process, and init reaps it
}

// lessonsFailure is the file in which that agent reports its failure to the next conversation of the
// project.
func (b *folder) lessonsFailure() string {
	return filepath.Join(b.root.Project(b.cwd).Dir(), "rem.failed")
}

// keepFailure writes the failure of that agent to the file. In other processes it does nothing.
func (b *folder) keepFailure(err error) {
	if err == nil || home.Lookup(b.env)(dreams.ParentVariable) == "" {
		return
	}
	if err := b.root.WriteAtomic(b.lessonsFailure(), []byte(excerpt.Line(err.Error(), 500))); err != nil {
		b.note(err.Error())
	}
}

// sayFailure notes the failure of the agent of an earlier conversation, once.
func (b prompts) sayFailure() {
	text, err := b.root.ReadFile(b.lessonsFailure(), 4096)
	if err != nil {
		return // mostly the file does not exist
	}
	b.note("the lessons of an earlier conversation are not consolidated: " + string(text))
	_ = b.root.Below().Remove(b.lessonsFailure()) // otherwise it is noted again
}
