package policy

import "syscall"

func markStat(st *syscall.Stat_t) mark {
	return mark{st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec, st.Mode}
}
