package policy

import "syscall"

func markStat(st *syscall.Stat_t) mark {
	return mark{
		uint64(st.Dev),
		st.Ino,
		st.Size,
		st.Mtimespec.Sec,
		st.Mtimespec.Nsec,
		st.Ctimespec.Sec,
		st.Ctimespec.Nsec,
		uint32(st.Mode),
	}
}
