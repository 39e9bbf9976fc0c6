/* One reservation; its message is delivered to two order consumers at once, and again; two replicas answer check-
   backs; two callers (buyer and time-out) end it at once. */
#define WORKERS 2
#define CHECKERS 2
#define STOCK 2
#define CANCEL_A 2
#include "../dropgate.pml"
