/* One reservation; its message is delivered to two order consumers at once, and again. It may be cancelled
   meanwhile. */
#define WORKERS 2
#define STOCK 2
#define CANCEL_A
#include "../dropgate.pml"
