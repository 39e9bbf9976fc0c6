/* One payment and a refund through a planned change of authority. */
#define PAYMENTS 1
#define REFUNDS 1
#define PLANNED_CHANGE
#include "../dropgate.pml"
