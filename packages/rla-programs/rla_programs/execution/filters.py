"""The seccomp filter (classic BPF) of a program: `assembled(...)` gives its bytes.

Refused with EPERM: system calls that reach another process (ptrace, process_vm_*, pidfd_getfd, prlimit of another,
priorities), make namespaces, mounts or sockets, or hold memory that no limit counts (memfd, System V IPC, message
queues, watches of files, rings of asynchronous I/O). With `alone` a program also cannot start processes (EAGAIN, as at
a limit; threads are allowed), signal others, or leave its process group. System calls newer than the lists get ENOSYS,
and a foreign ABI kills the program. Numbers: asm/unistd of each machine.
"""

from __future__ import annotations

import errno
import struct

from rla_programs.execution.controller import OWN_PID

# name: (x86-64, aarch64)
DENIED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "setpriority": (141, 140),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    "fanotify_init": (300, 262),
    "inotify_init": (253, 26),  # watches hold kernel memory; aarch64 has only the other
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "open_by_handle_at": (304, 265),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "personality": (135, 92),
    "socket": (41, 198),
}
ESCAPING = {  # calls that reach outside of the process, or leave its group
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
}
FORKING = {"fork": (57, None), "vfork": (58, None)}
KILLING = {"kill": (62, 129), "tgkill": (234, 131)}
CLONE, CLONE3, PRLIMIT = (56, 220), (435, 435), (302, 261)
NEWEST = 449  # futex_waitv

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH

CLONE_THREAD = 0x00010000
CLONE_NAMESPACES = 0x7E020080  # every CLONE_NEW*

LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCH, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; the low half of the argument
ALLOW, KILL = 0x7FFF0000, 0x80000000

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def fails(number: int) -> Instruction:
    """The system call returns this errno."""
    return (RETURN, 0, 0, 0x00050000 | number)


def only(number: int, then: list[Instruction]) -> list[Instruction]:
    """Instructions for one system call, which end with a return; other calls skip them."""
    return [(EQUAL, 0, len(then), number), *then]


def _first_argument_is(value: int, otherwise: int) -> list[Instruction]:
    """Allowed if the first argument is `value`."""
    return [(LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW), fails(otherwise)]


def _cloning(alone: bool) -> list[Instruction]:
    """No new namespaces; `alone`: only threads."""
    code = [(LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, CLONE_NAMESPACES), fails(errno.EPERM)]
    if alone:
        code += [(ANY_BIT, 1, 0, CLONE_THREAD), fails(errno.EAGAIN)]
    return [*code, (RETURN, 0, 0, ALLOW)]


def with_head(machine: str, *, alone: bool = False) -> list[Instruction]:
    """The beginning of every filter: no foreign ABI, newer system call, new namespace or limits of other processes."""
    column, arch = MACHINES[machine]
    code = [(LOAD, 0, 0, ARCH), (EQUAL, 1, 0, arch), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, NEWEST + 1), fails(errno.ENOSYS)]
    code += only(CLONE3[column], [fails(errno.ENOSYS)])  # its flags are out of reach; libc falls back to clone
    code += only(CLONE[column], _cloning(alone))
    return code + only(PRLIMIT[column], _first_argument_is(0, errno.EPERM))


def instructions(machine: str, *, alone: bool) -> list[Instruction]:
    """The filter, with OWN_PID as a placeholder for the program's pid. Raises KeyError for an unknown machine."""
    column = MACHINES[machine][0]
    code = with_head(machine, alone=alone)
    for numbers in [*DENIED.values(), *(ESCAPING.values() if alone else ())]:
        code += only(numbers[column], [fails(errno.EPERM)])
    if alone:
        for forking in FORKING.values():
            if (number := forking[column]) is not None:
                code += only(number, [fails(errno.EAGAIN)])
        for killing in KILLING.values():
            code += only(killing[column], _first_argument_is(OWN_PID, errno.EPERM))
    return [*code, (RETURN, 0, 0, ALLOW)]


def assembled(machine: str, *, alone: bool) -> bytes:
    """`instructions` as an array of struct sock_filter."""
    return b"".join(struct.pack("=HBBI", *line) for line in instructions(machine, alone=alone))
