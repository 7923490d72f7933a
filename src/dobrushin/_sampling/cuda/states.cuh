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

// Such numbers come from the memory of constants: written where they are used, each would take two instructions more.
__constant__ double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;
