//go:build linux

package mutants

// mutants are the faults, in the order of docs/reliability.md. Their replacements
// are short, so that they go on fitting while the code around them changes.
func mutants() []mutant {
	return []mutant{
		{
			name: "two-commits", says: "an end and its notification are committed one after the other",
			edits: []edit{{"internal/engine/journal/writer.go", "\tn.Seq = seq\n",
				"\tn.Seq = seq\n\tif err := errors.Join(w.exec(\"COMMIT\"), w.exec(\"BEGIN IMMEDIATE\")); err != nil {\n\t\treturn err\n\t}\n"}},
			tests: []string{"internal/engine/journal:TestSecondEnd"},
		},
		{
			name: "early-ack", says: "a message is acknowledged before the transcript holds it",
			edits: []edit{{"agent/mail.go", "\tif len(blocks)+len(prompt) > 0 {\n\t\tr := Record{Message: t.userMessage(",
				"\tif err := t.ack(ctx, delivered); err != nil {\n\t\treturn err\n\t}\n\tif len(blocks)+len(prompt) > 0 {\n\t\tr := Record{Message: t.userMessage("}},
			tests: []string{"agent:TestUnrecordedMailIsNotAcknowledged"},
		},
		{
			name: "no-adoption", says: "the next host treats a running kept command as lost",
			edits: []edit{{"internal/engine/supervise/adopt.go", " d.Adopts(r)", " !d.Adopts(r)"}},
			tests: []string{"internal/engine/supervise:TestAdopter", "cmd/drover/testdata/script/keep_adopt.txtar"},
		},
		{
			name: "no-cont", says: "CONT is not sent after TERM",
			edits: []edit{
				{"internal/engine/process/end.go", " && g.signalGroup(syscall.SIGCONT) == nil", ""},
				{"internal/engine/process/end.go", "\t\t_ = t.h.signal(syscall.SIGCONT)\n", ""},
			},
			tests: []string{"internal/engine/process:TestEnd", "internal/driver/shell:TestStop"},
		},
		{
			name: "pid-alone", says: "a process is identified by its PID alone, without its start time",
			edits: []edit{
				{"internal/engine/process/process.go", "case err == nil && p.Start != id.Start, err == nil && p.ended()", "case err == nil && p.ended()"},
				{"internal/engine/process/process.go", "err == nil && p.Start == id.Start && !p.ended()", "err == nil && !p.ended()"},
			},
			tests: []string{"internal/engine/process:TestAdopt", "internal/driver/shell:TestLost"},
		},
		{
			name: "thaw-first", says: "a tree may grow while it is stopped: it is frozen only after its children have ended",
			edits: []edit{
				{"internal/engine/supervise/stop.go", "\te.freeze(st.why())\n\tfor {\n\t\tfresh := st.fresh(e)\n\t\tif len(fresh) == 0 {\n\t\t\tbreak", "\tfor {\n\t\tfresh := st.fresh(e)\n\t\tif len(fresh) == 0 {\n\t\t\tbreak"},
				{"internal/engine/supervise/stop.go", "\tst.one(ctx, e)\n}", "\te.freeze(st.why())\n\tst.one(ctx, e)\n}"},
				{"internal/engine/supervise/stop.go", "\tc.freeze(st.why())\n\tc.mu.Lock()", "\tc.mu.Lock()"},
			},
			tests: []string{"internal/engine/supervise:TestStopRegrowing"},
		},
		{
			name: "second-end", says: "a later event can change an end",
			edits: []edit{
				{"internal/engine/lifecycle/state.go", "return task.Failed, !from.Terminal()", "return task.Failed, true"},
				{"internal/engine/lifecycle/state.go", "return task.Killed, !from.Terminal()", "return task.Killed, true"},
			},
			tests: []string{"internal/engine/lifecycle:TestApplyTable", "internal/engine/lifecycle:FuzzApply"},
		},
		{
			name: "lock-content", says: "a lock is the PID written in a file",
			edits: []edit{{"internal/platform/home/lock.go", "\t\terr := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)\n",
				"\t\tvar err error\n\t\tif held, _ := os.ReadFile(f.Name()); len(held) > 0 {\n\t\t\terr = unix.EWOULDBLOCK\n\t\t} else {\n\t\t\t_, err = f.WriteString(\"held\")\n\t\t}\n"}},
			tests: []string{"internal/platform/home:TestLock"},
		},
		{
			name: "torn-line", says: "a torn last line of a transcript is not truncated before the next line",
			edits: []edit{{"agent/transcript.go", "if err := t.file.Truncate(t.size); err != nil {\n\t\treturn fmt.Errorf(\"cut torn line",
				"if err := error(nil); err != nil {\n\t\treturn fmt.Errorf(\"cut torn line"}},
			tests: []string{"agent:TestTornLastLine"},
		},
		{
			name: "any-file", says: "an output file may already exist and be a symbolic link",
			edits: []edit{
				{"internal/engine/spool/file.go", "unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_EXCL", "unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT"},
				{"internal/platform/saferoot/open_linux.go", "Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,", "Resolve: 0,"},
			},
			tests: []string{"internal/engine/spool:TestPlanted"},
		},
		{
			name: "shown-early", says: "a change is visible before the log has it",
			edits: []edit{{"internal/engine/supervise/supervisor.go", "\tif _, err := s.cfg.Log.Append(ctx, entry)", "\te.rec.Store(&next)\n\tif _, err := s.cfg.Log.Append(ctx, entry)"}},
			tests: []string{"internal/engine/supervise:TestFaults", "test/faults:TestLogFails"},
		},
		{
			name: "one-try", says: "recording an end is not retried",
			edits: []edit{{"internal/engine/supervise/run.go", "if err == nil || errors.As(err, &move) {", "if err == nil || err != move {"}},
			tests: []string{"internal/engine/supervise:TestFaults", "test/faults:TestLogFails"},
		},
		{
			name: "no-mark", says: "a stop does not look for processes that have left the group",
			edits: []edit{{"internal/engine/process/end.go", `return e.Mark != "" && p.Carries(MarkTask, e.Mark)`, "return false"}},
			tests: []string{"internal/engine/process:TestEnd", "test/faults:TestStubborn"},
		},
		{
			name: "any-boot", says: "a process from before a reboot is taken for ours",
			edits: []edit{
				{"internal/engine/process/process.go", "if id.Boot != Boot() {", "if false {"},
				{"internal/engine/process/process.go", "id.PID <= 0 || id.Boot != Boot()", "id.PID <= 0"},
			},
			tests: []string{"internal/engine/process:TestReboot"},
		},
		{
			name: "orphans", says: "the keeper does not end the processes that its host has left",
			edits: []edit{{"internal/engine/keeper/ward.go", "return process.EndAll(ctx, w.choice(), process.Ending{Grace: grace, Table: &w.table})", "return process.Report{}"}},
			tests: []string{"internal/engine/keeper:TestHostKilled"},
		},
		{
			name: "told-twice", says: "a message that the transcript holds is delivered again after a crash",
			edits: []edit{{"agent/mail.go", "return t.Holds(seq)", "return false"}},
			tests: []string{"agent:TestLetterIsToldOnceAndAcknowledgedAgain"},
		},
		{
			name: "no-sum", says: "a log record that has changed on disk is accepted",
			edits: []edit{{"internal/engine/journal/sum.go", "\t\treturn ErrDamaged\n", "\t\t_ = ErrDamaged\n"}},
			tests: []string{"internal/engine/journal:TestDamagedRecord", "test/faults:TestDamagedLog"},
		},
		{
			name: "deaf-to-pipes", says: "commands inherit an ignored SIGPIPE",
			edits: []edit{{"cmd/drover/main.go", "\tsignal.Notify(passed, syscall.SIGPIPE)\n", "\tsignal.Notify(passed, syscall.SIGPIPE)\n\tsignal.Ignore(syscall.SIGPIPE)\n"}},
			tests: []string{"test/faults:TestEveryEnd"},
		},
	}
}
