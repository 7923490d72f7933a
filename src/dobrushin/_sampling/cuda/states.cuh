// What kernels of variables with up to LABELS states share.

#ifndef LABELS
#define LABELS 8
#endif
#ifndef STATE
#define STATE signed char
#endif
// With few labels their weights are in registers, which cannot be looked up by number.
#if LABELS <= 32
#define EACH _Pragma("unroll")
#else
#define EACH _Pragma("unroll 1")
#endif

#define UNIT (1.0 / 9007199254740992.0)
